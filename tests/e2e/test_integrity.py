"""Pages that are not trusted, and swap space, as a user meets them."""
import signal
import subprocess

import pytest
from serving import BINARY, Server, in_parallel, wait_until

from test_pressure import pages, prompt_of

FIELDS = {"max_tokens": 150, "logprobs": 1, "ignore_eos": True, "return_token_ids": True}
PROMPTS = [prompt_of(3 + i * 5, seed=9) for i in range(16)]


@pytest.fixture(scope="module")
def expected(rand_server):
    """Answers with room for all and no faults, and the bytes of a token."""
    answers = in_parallel(lambda prompt: rand_server.complete(prompt, **FIELDS)["choices"], PROMPTS)
    assert rand_server.metric("num_preemptions_total") == 0
    return answers, rand_server.metric("kv_bytes_per_token")


def ask_all(server):
    return in_parallel(lambda prompt: server.complete(prompt, **FIELDS)["choices"], PROMPTS)


@pytest.mark.parametrize("files", [False, True], ids=["memory", "files"])
def test_swapped_requests_answer_the_same(tiny, serve, expected, tmp_path, files):
    answers, token_bytes = expected
    flags = ["--swap-dir", tmp_path] if files else []
    server = serve(tiny.rand(), *pages(token_bytes, 30), "--preemption-mode", "swap", "--swap-space", "0.25", *flags)
    assert ask_all(server) == answers
    for direction in "out", "in":
        assert server.metric("kv_swaps_total", direction=direction) == server.metric("num_preemptions_total") > 0
        assert server.metric("kv_swap_bytes_total", direction=direction) > 0
        assert server.metric("kv_swap_seconds_total", direction=direction) > 0
    assert server.metric("kv_page_checks_total", boundary="swap_in", result="ok") > 0
    assert server.metric("kv_page_checks_total", boundary="swap_in", result="mismatch") == 0
    assert server.metric("kv_swap_space_bytes") == 1 << 28
    assert server.log.count("moved to swap space") == 1, "said once"
    wait_until(server.is_idle, 2, "idle")
    assert server.metric("kv_swap_used_bytes") == 0 == server.metric("num_requests_swapped")


def test_a_killed_server_leaves_nothing_to_be_used(tiny, serve, expected, tmp_path, logs):
    """Swap files have no names, and what lies in the folder otherwise is neither read nor touched."""
    answers, token_bytes = expected
    garbage = tmp_path / "masu-swap-abcdef"
    garbage.write_bytes(b"not pages" * 1000)
    flags = [*pages(token_bytes, 30), "--preemption-mode", "swap", "--swap-dir", tmp_path]
    for _ in range(3):
        killed = Server(tiny.rand(), *flags, logs=logs).start()
        connections = [killed.raw("/v1/completions", {"prompt": prompt, **FIELDS}) for prompt in PROMPTS]
        wait_until(lambda server=killed: server.metric("kv_swaps_total", direction="out") > 0, 60, "pages are swapped")
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait(20)
        for connection in connections:
            connection.close()
        assert [path.name for path in tmp_path.iterdir()] == [garbage.name]
    server = serve(tiny.rand(), *flags)
    assert ask_all(server) == answers
    assert server.metric("kv_swaps_total", direction="in") > 0
    assert garbage.read_bytes() == b"not pages" * 1000


@pytest.mark.parametrize("arguments, names", [
    (["--swap-dir", "/nowhere/at/all"], "/nowhere/at/all"),
    (["--preemption-mode", "swap", "--swap-space", "0"], "--swap-space"),
    (["--preemption-mode", "sometimes"], "recompute"),
    (["--swap-space", "much"], "much"),
    (["--kv-integrity", "maybe"], "repair"),
    (["--fault-injection", "gremlins=1"], "flipped_header"),
], ids=str)
def test_bad_settings_are_named(tiny, arguments, names):
    result = subprocess.run([BINARY, "serve", tiny.rand(), "--port", "0", "--kv-cache-memory-bytes", "4MiB", *arguments],
                            capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode in (1, 2), result.stderr
    assert names in result.stderr.strip().splitlines()[-1], result.stderr


@pytest.mark.parametrize("mode", ["repair", "abort"])
def test_faults_never_reach_an_answer(tiny, serve, expected, mode):
    answers, token_bytes = expected
    server = serve(tiny.rand(), *pages(token_bytes, 60), "--kv-integrity", mode, "--kv-integrity-unready-after", "0",
                   "--fault-injection", "all=0.01,flipped_header=0.05,flipped_page=0,lost_wakeup=0,seed=5")
    got = in_parallel(lambda prompt: server.post("/v1/completions", {"prompt": prompt, "temperature": 0, **FIELDS}), PROMPTS)
    for want, answer in zip(answers, got):
        if mode == "abort" and answer.status == 500:
            assert "KV cache" in answer.error["message"]
        else:
            assert answer.json["choices"] == want
    found = server.metric("kv_page_checks_total", boundary="step", result="mismatch")
    assert found > 0
    counter = {"repair": "kv_pages_repaired_total", "abort": "kv_integrity_aborts_total"}[mode]
    assert server.metric(counter) > 0
    assert server.metric("kv_faults_injected_total", kind="flipped_header") > 0
    wait_until(server.is_idle, 2, "idle")
    wait_until(lambda: server.metric("kv_pages_quarantined") == 0, 5, "quarantined pages return")


def test_three_bad_pages_make_the_server_unready(tiny, serve):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "4MiB", "--fault-injection", "flipped_header=1")
    assert server.get("/ready").status == 200
    answer = server.post("/v1/completions", {"prompt": prompt_of(20), "max_tokens": 5})
    assert answer.status == 500 and "KV cache" in answer.error["message"], "memory that always fails ends the request"
    assert server.metric("kv_integrity_unready") == 1
    assert server.get("/ready").status == 503
    refused = server.post("/v1/completions", {"prompt": prompt_of(20), "max_tokens": 5})
    assert refused.status == 503 and "minute" in refused.error["message"] and refused.headers["Retry-After"] == "60"


def test_debug_kv(tiny, serve, expected):
    _, token_bytes = expected
    closed = serve(tiny.rand(), "--kv-cache-memory-bytes", "4MiB")
    answer = closed.get("/debug/kv")
    assert answer.status == 404 and "--enable-debug-endpoints" in answer.error["message"]
    server = serve(tiny.rand(), *pages(token_bytes, 30), "--enable-debug-endpoints", "--preemption-mode", "swap")
    running = [server.raw("/v1/completions", {"prompt": prompt, **FIELDS, "max_tokens": 300}) for prompt in PROMPTS]
    seen = set()

    def look():
        report = server.get("/debug/kv").json
        assert report["violations"] == []
        layout, = report["layouts"]
        assert layout["in_use"] + layout["idle"] <= 30
        assert report["swap_used_bytes"] == sum(choice["swapped_bytes"] for choice in report["choices"])
        seen.update(choice["state"] for choice in report["choices"])
        return seen == {"running", "waiting", "swapped"}
    wait_until(look, 60, "all states were seen")
    for connection in running:
        connection.close()
    wait_until(server.is_idle, 5, "idle")
