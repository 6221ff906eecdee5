"""The plan of memory: what serve prints and reports is what masu plan says, and the process stays inside it."""
import json
import random
import re
import subprocess
import threading

import pytest
from serving import BINARY, START_SECONDS, Server, in_parallel, wait_until

MIB = 1 << 20


def planned(server):
    """{part: bytes} as /metrics has it."""
    return {labels["part"]: int(value) for labels, value in server.samples("memory_plan_bytes")}


class Peak(threading.Thread):
    """Watches what of a process the operating system holds for it alone: anonymous and shared memory."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.peak, self.samples, self.ended = server, 0, 0, threading.Event()

    def run(self):
        while not self.ended.wait(0.005):
            self.peak = max(self.peak, self.server.memory("RssAnon") + self.server.memory("RssShmem"))
            self.samples += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def prompt_of(rng, length):
    return [rng.randrange(100, 40000) for _ in range(length)]


def large_bodies(size):
    """Bodies of that many bytes, each the worst of its kind; all are refused after they were read."""
    text = "hello, world! "
    return [("/v1/completions", json.dumps({"prompt": text * (size // len(text))})),
            ("/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": text * (size // len(text))}]})),
            ("/v1/completions", '{"prompt":[' + ",".join(["7"] * (size // 2 - 10)) + "]}"),
            ("/v1/completions", '{"prompt":[' + ",".join(["[]"] * (size // 3 - 10)) + "]}"),
            ("/v1/completions", '{"prompt":[' + ",".join(['""'] * (size // 3 - 10)) + "]}"),
            ("/tokenize", json.dumps({"prompt": text * (size // len(text))}))]


def load(server, each, tokens):
    """Requests of every kind at once: long and short prompts, streams, logprobs, bodies near the limit."""
    rng = random.Random(each)
    jobs = []
    for _ in range(each):
        jobs.append(("/v1/completions", {"prompt": prompt_of(rng, 700), "max_tokens": 8, "temperature": 1}))
        jobs.append(("/v1/completions", {"prompt": prompt_of(rng, 100), "max_tokens": tokens, "logprobs": 20, "echo": True,
                                         "ignore_eos": True}))
        jobs.append(("/v1/completions", {"prompt": prompt_of(rng, 50), "max_tokens": tokens, "stream": True, "logprobs": 5,
                                         "n": 2, "ignore_eos": True}))
    jobs.append(("/v1/completions", {"prompt": prompt_of(rng, 400 * each), "max_tokens": 4}))
    bodies = 2 * large_bodies(31 * MIB)
    rng.shuffle(jobs)
    statuses = in_parallel(lambda job: server.post(*job).status, jobs + bodies)
    assert statuses[:len(jobs)].count(200) >= len(jobs) // 2, statuses  # 503: too many large bodies at once
    assert set(statuses) <= {200, 400, 503}, statuses
    assert statuses[len(jobs):].count(400) >= 2, "large bodies were read"


@pytest.mark.parametrize("arena, threads, each", [("64MiB", 2, 6), ("512MiB", 1, 2), ("64MiB", 16, 2)])
def test_process_stays_inside_its_plan(smollm2_path, logs, arena, threads, each):
    """Peak anonymous and shared memory, from the start of the process to the end of a heavy load, is below the total."""
    # Swap space that nobody uses would only widen the bound.
    server = Server(smollm2_path, "--kv-cache-memory-bytes", arena, "--threads", threads, "--swap-space", "0",
                    logs=logs).spawn()
    try:
        with Peak(server) as peak:
            wait_until(server.is_ready, START_SECONDS, "/health answers 200")
            parts = planned(server)
            load(server, each, tokens=6 * each)
            assert server.complete("hello", max_tokens=4)["usage"]["completion_tokens"] == 4
    finally:
        server.stop()
    total = parts.pop("total")
    assert peak.samples > 20
    assert parts["kv_arena"] + parts["weights"] < peak.peak, "the pages are committed and counted"
    print(f"peak {peak.peak / MIB:.0f} of {total / MIB:.0f} MiB")
    assert peak.peak <= total, f"{peak.peak / MIB:.0f} MiB of a plan of {total / MIB:.0f}: {parts}"
    assert sum(parts.values()) == total
    assert parts["reserve"] <= 0.03 * total


def run_plan(model, *flags):
    command = [BINARY, "plan", model, "--device", "cpu", *flags, "--kv-cache-dtype", "all", "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_serve_and_plan_agree(smollm2_path, serve):
    """The same model, share and machine: the same tokens, the same parts, the same total."""
    memory = json.loads(run_plan(smollm2_path, "--gpu-memory-utilization", "0.5"))["memory_bytes"]
    share = f"{1.5 * (1 << 30) / memory:.4f}"
    server = serve(smollm2_path, "--gpu-memory-utilization", share, "--kv-cache-dtype", "int8", "--kv-cache-dtype-choices", "none")
    answer = json.loads(run_plan(smollm2_path, "--gpu-memory-utilization", share))
    rows = {(row["kv_encoding"], row["kv_scale"]): row for row in answer["plans"]}
    assert rows["int8", "dynamic"]["process_bytes"] == planned(server)
    assert planned(server)["total"] <= answer["budget_bytes"]
    assert server.metric("kv_arena_bytes") == rows["int8", "dynamic"]["kv_arena_bytes"]
    assert server.metric("kv_pages") * 16 == rows["int8", "dynamic"]["kv_tokens"]
    # The table of the start has the same rows.
    table = re.findall(r"^[> ] ([\w/]+) +(\w+) +([\d,]+) +([\d,]+) tokens +([\d,]+)", server.log, re.MULTILINE)
    printed = {(encoding, scale): [int(number.replace(",", "")) for number in numbers]
               for encoding, scale, *numbers in table}
    assert printed == {key: [row["kv_bytes_per_token"], row["kv_tokens"], row["max_concurrent_requests"]]
                       for key, row in rows.items()}


def test_plan_comes_before_the_weights(smollm2_path, serve):
    server = serve(smollm2_path, "--kv-cache-memory-bytes", "64MiB")
    lines = server.log.splitlines()
    total = next(i for i, line in enumerate(lines) if line.strip().startswith("TOTAL"))
    assert any(line.startswith("  reserve") and line.rstrip().endswith("%") for line in lines[:total])
    assert total < next(i for i, line in enumerate(lines) if "packing weights" in line)


@pytest.mark.parametrize("share", [0.999, 1.5])
def test_plan_that_does_not_fit_is_refused_before_loading(smollm2_path, share):
    """Pages for all of the machine, and more: what would fit is named."""
    memory = json.loads(run_plan(smollm2_path, "--gpu-memory-utilization", "0.5"))["memory_bytes"]
    done = subprocess.run([BINARY, "serve", smollm2_path, "--port", "0", "--kv-cache-memory-bytes", str(int(share * memory))],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "packing weights" not in done.stderr, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(r"--kv-cache-memory-bytes .*use at most [\d.]+ (GiB|MiB)", last), last


@pytest.mark.parametrize("flags, least", [(["bfloat16"], 32), (["fp8", "--kv-scale", "unit"], 64), (["fp8"], 62)], ids=str)
def test_room_for_half_of_the_requests(smollm2_path, serve, flags, least):
    """64 requests of eight pages where 32.5 fit at bfloat16: all are answered, inside the plan."""
    pages = 260
    server = serve(smollm2_path, "--kv-cache-memory-bytes", pages * 16 * 23040, "--swap-space", "0.0625",
                   "--kv-cache-dtype", *flags)
    rng = random.Random(4)
    prompts = [prompt_of(rng, 48) for _ in range(64)]
    most, ended = [0], threading.Event()

    def watch():
        while not ended.wait(0.02):
            text = server.get("/metrics").body
            running, used = (float(re.search(rf"^masu:{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)[1])
                             for name in ("num_requests_running", "kv_pages_used"))
            most[0] = max(most[0], min(running, used / 8))
    watcher = threading.Thread(target=watch)
    with Peak(server) as peak:
        watcher.start()
        answers = in_parallel(lambda prompt: server.complete(prompt, max_tokens=80, ignore_eos=True), prompts)
        ended.set()
        watcher.join()
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [80] * 64
    # What was seen between two looks is a page of each short at worst.
    assert most[0] >= least * 7 / 8
    assert peak.samples > 20 and peak.peak <= planned(server)["total"]
    print(f"{flags}: {most[0]:.1f} requests resident at once, peak {peak.peak / MIB:.0f} of {planned(server)['total'] / MIB:.0f} MiB")
