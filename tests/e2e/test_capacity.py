"""What an encoding of the cache buys: tokens in the same bytes, and use of the cache under the same load."""
import re
import subprocess

import pytest
from serving import BINARY, Server, wait_until

# 4 KV heads of 64 in 2 layers: small, and of the head size for which the promise is made.
HEAD_64 = {"heads": 4, "kv_heads": 4, "head_dim": 64, "hidden": 64, "context": 8192}
ARENA = 32 << 20


@pytest.fixture(scope="module")
def wide_model(tiny):
    return tiny.rand("head64", **HEAD_64)


def held_by_the_same_load(server):
    """kv_cache_usage_perc and pages with eight requests of 640 tokens running; some tokens may be to come."""
    # Each begins in its own way: equal ones would share their pages.
    sockets = [server.raw("/v1/completions", {"prompt": [310 + n] + [300 + i % 200 for i in range(639)], "max_tokens": 7000,
                                              "ignore_eos": True}) for n in range(8)]
    wait_until(lambda: server.metric("num_requests_running") == 8 and server.metric("kv_pages_used") >= 8 * 41, 60,
               "eight are past their prompts")
    text = server.get("/metrics").body
    values = {name: float(re.search(rf"^masu:{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)[1])
              for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc", "kv_pages_used", "kv_pages")}
    assert values["gpu_cache_usage_perc"] == values["kv_cache_usage_perc"]
    assert "\nvllm:kv_cache_usage_perc{" in text and "\nvllm:gpu_cache_usage_perc{" in text
    for connection in sockets:
        connection.close()
    wait_until(server.is_idle, 2, "idle")
    return values["kv_cache_usage_perc"], values["kv_pages_used"]


@pytest.mark.parametrize("flags, ratio, use", [
    (["int8"], 1.9, 66 / 128), (["fp8"], 1.9, 66 / 128), (["fp8_e4m3", "--kv-scale", "dynamic"], 1.9, 66 / 128),
    (["fp8", "--kv-scale", "unit"], 1.99, 0.5), (["fp8_e5m2"], 1.99, 0.5), (["int8_per_token_head"], 1.9, 66 / 128)],
    ids=str)
def test_tokens_in_the_same_arena(wide_model, serve, baseline, flags, ratio, use):
    server = serve(wide_model, "--kv-cache-memory-bytes", ARENA, "--kv-cache-dtype", *flags)
    cache = server.cache()
    assert server.metric("kv_arena_bytes") == ARENA == baseline["arena"]
    blocks = int(cache["num_gpu_blocks"])
    assert cache["block_size"] == "16" and blocks == server.metric("kv_pages")
    assert blocks >= ratio * baseline["blocks"]
    assert blocks * server.metric("kv_bytes_per_token") * 16 <= ARENA
    used, pages = held_by_the_same_load(server)
    # Per page, since the load may be a page further on here than there.
    assert (used / pages) / (baseline["used"] / baseline["pages"]) == pytest.approx(use, abs=0.01)
    assert used > 0.05
    assert cache["cache_dtype"] in ("int8", "fp8_e4m3", "fp8_e5m2")
    # The capacity line of the start is the same figure.
    assert f"{blocks * 16:,} tokens" in next(line for line in server.log.splitlines() if line.startswith(">"))


@pytest.fixture(scope="module")
def baseline(wide_model, logs):
    with Server(wide_model, "--kv-cache-memory-bytes", ARENA, "--kv-cache-dtype", "bfloat16", logs=logs) as server:
        used, pages = held_by_the_same_load(server)
        yield {"blocks": int(server.cache()["num_gpu_blocks"]), "arena": server.metric("kv_arena_bytes"),
               "used": used, "pages": pages}


def test_published_case(smollm2):
    """SmolLM2 in 1 GiB with fp8 and dynamic scales: about 90,400 tokens."""
    tokens = int(smollm2.cache()["num_gpu_blocks"]) * int(smollm2.cache()["block_size"])
    assert tokens == pytest.approx(90_400, rel=0.005)
    table = dict(re.findall(r"^[> ] (\w+ +\w+) +[\d,]+ +([\d,]+) tokens", smollm2.log, re.MULTILINE))
    capacity = {tuple(name.split()): int(value.replace(",", "")) for name, value in table.items()}
    assert capacity["fp8_e4m3", "dynamic"] == tokens
    assert capacity["bfloat16", "none"] == pytest.approx(46_600, rel=0.005)
    assert "recommended" in next(line for line in smollm2.log.splitlines() if line.strip().startswith("int8"))


@pytest.mark.parametrize("block_size", [8, 16, 32, 64, 128])
def test_block_sizes(tiny, serve, block_size):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "4MiB", "--block-size", block_size)
    assert server.cache()["block_size"] == str(block_size)
    answer = server.complete([300 + i for i in range(100)], max_tokens=30, logprobs=1)
    reference = serve(tiny.rand(), "--kv-cache-memory-bytes", "4MiB")
    assert reference.complete([300 + i for i in range(100)], max_tokens=30, logprobs=1)["choices"] == answer["choices"]


def test_memory_stays_inside_the_plan(wide_model, serve):
    """The arena is committed at start, and serving adds next to nothing to it."""
    server = serve(wide_model, "--kv-cache-memory-bytes", "128MiB", "--kv-cache-dtype", "fp8")
    resident = server.memory("RssAnon") + server.memory("RssShmem")
    assert resident >= 128 << 20, "the cache is committed before it is used"
    held_by_the_same_load(server)
    assert server.memory("RssAnon") + server.memory("RssShmem") < resident + (64 << 20)


def test_more_memory_than_there_is(wide_model):
    """Refused at start, with the figure that fits."""
    result = subprocess.run([BINARY, "serve", wide_model, "--port", "0", "--kv-cache-memory-bytes", "100TiB"],
                            capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert re.search(r"\d+(\.\d+)? (GiB|MiB)", last), last
