"""Precision per request: answers of a choice are those of a server that has it as its default, whatever runs beside them;
pages are never shared between two; names, policy and retries as a client and an operator see them."""
import hashlib
import json
import subprocess

import pytest
from serving import BINARY, ROOT, Server, in_parallel

ARENA = "--kv-cache-memory-bytes", "256MiB"
FIELDS = {"max_tokens": 24, "logprobs": 5, "return_token_ids": True}
# The last is longer than several pages.
PROMPTS = ["The capital of France is", "Once upon a time", "def fibonacci(n):", "1, 2, 3, 4,",
           "The quick brown fox jumps over the lazy dog. " * 12]
CHOICES = ["int8", "bfloat16", "int8/int4"]


def result_of(answer):
    choice = answer["choices"][0]
    return {key: choice[key] for key in ("text", "token_ids", "logprobs", "finish_reason")}


@pytest.fixture(scope="module")
def server(smollm2_path, logs):
    with Server(smollm2_path, "--kv-cache-dtype", "int8", "--kv-cache-dtype-choices", "auto,int8/int4", *ARENA,
                "--served-model-name", "SmolLM2", logs=logs) as running:
        yield running


@pytest.fixture(scope="module")
def expected(smollm2_path, logs):
    """What servers of one dtype each answer: {dtype: [result per prompt]}."""
    results = {}
    for dtype in CHOICES:
        with Server(smollm2_path, "--kv-cache-dtype", dtype, "--kv-cache-dtype-choices", "none", *ARENA, logs=logs) as alone:
            results[dtype] = [result_of(alone.complete(prompt, **FIELDS)) for prompt in PROMPTS]
    assert len({str(result) for result in results.values()}) == len(CHOICES), "the comparison can fail"
    return results


@pytest.mark.parametrize("dtype", CHOICES)
def test_as_a_server_of_that_dtype(server, expected, dtype):
    for prompt, result in zip(PROMPTS, expected[dtype]):
        answer = server.complete(prompt, kv_cache_dtype=dtype, **FIELDS)
        assert result_of(answer) == result
        assert answer["masu"] == {"kv_cache_dtype": dtype, "kv_scale": "none" if dtype == "bfloat16" else "dynamic"} | (
            {} if dtype == "int8" else {"why": "request"})


def test_side_by_side(server, expected):
    """All prompts in all dtypes at once, so that steps mix them."""
    jobs = [(dtype, i) for i in range(len(PROMPTS)) for dtype in CHOICES] * 2
    steps, tokens = server.metric("engine_steps_total"), server.metric("generation_tokens_total")
    answers = in_parallel(lambda job: server.complete(PROMPTS[job[1]], kv_cache_dtype=job[0], **FIELDS), jobs)
    for (dtype, i), answer in zip(jobs, answers):
        assert result_of(answer) == expected[dtype][i], (dtype, i)
    per_step = (server.metric("generation_tokens_total") - tokens) / (server.metric("engine_steps_total") - steps)
    assert per_step > 1.5, "several requests were in one step"


def test_prefixes_are_not_shared(server):
    prompt = "A story that nobody has told here before, about rice and boxes. " * 10
    cached = [server.complete(prompt, kv_cache_dtype=dtype, max_tokens=4)["usage"]["prompt_tokens_details"]["cached_tokens"]
              for dtype in ("int8", "bfloat16", "int8/int4", "int8", "bfloat16", "int8/int4")]
    assert cached[:3] == [0, 0, 0] and min(cached[3:]) > 64 and len(set(cached[3:])) == 1


def test_metrics(server):
    before = {dtype: server.metric("requests_by_kv_cache_dtype_total", kv_cache_dtype=dtype) for dtype in CHOICES}
    for dtype, count in (("bfloat16", 3), ("int8/int4", 2)):
        for _ in range(count):
            server.complete("x", kv_cache_dtype=dtype, max_tokens=1)
    server.post("/v1/completions", {"prompt": "x", "kv_cache_dtype": "int9"})
    after = {dtype: server.metric("requests_by_kv_cache_dtype_total", kv_cache_dtype=dtype) for dtype in CHOICES}
    assert {dtype: after[dtype] - before[dtype] for dtype in CHOICES} == {"int8": 0, "bfloat16": 3, "int8/int4": 2}


def test_names(server, expected):
    ids = {entry["id"]: entry["parent"] for entry in server.get("/v1/models").json["data"]}
    assert ids == {"SmolLM2": None, "SmolLM2:bfloat16": "SmolLM2", "SmolLM2:int8/int4": "SmolLM2"}
    for alias, dtype in (("SmolLM2:bf16", "bfloat16"), ("SmolLM2:int8/int4", "int8/int4")):
        answer = server.complete(PROMPTS[0], model=alias, **FIELDS)
        assert result_of(answer) == expected[dtype][0]
        assert (answer["model"], answer["masu"]["why"]) == (alias, "alias")
    chunks = server.stream_chat("Hello", model="SmolLM2:bf16", max_tokens=3).chunks
    assert chunks[-1]["masu"] == {"kv_cache_dtype": "bfloat16", "kv_scale": "none", "why": "alias"}


@pytest.mark.parametrize("fields, status, param", [
    ({"kv_cache_dtype": "int9"}, 400, "kv_cache_dtype"), ({"kv_cache_dtype": "fp8"}, 400, "kv_cache_dtype"),
    ({"kv_cache_dtype": 8}, 400, "kv_cache_dtype"), ({"model": "SmolLM2:fp8"}, 404, "model"),
    ({"model": "SmolLM2:bf16", "kv_cache_dtype": "int8"}, 400, "kv_cache_dtype")], ids=str)
def test_refused(server, fields, status, param):
    answer = server.post("/v1/completions", {"prompt": "x"} | fields)
    assert answer.status == status and answer.error["param"] == param
    if fields.get("kv_cache_dtype") == "fp8":
        assert "int8, bfloat16, int8/int4" in answer.error["message"] and "--kv-cache-dtype-choices" in answer.error["message"]


# --- the policy ------------------------------------------------------------------------------------------------------------

POLICY = {"rules": [
    {"name": "legal", "match": {"api_key_sha256": hashlib.sha256(b"sk-legal").hexdigest()}, "kv_cache_dtype": "bfloat16"},
    {"name": "sums", "match": {"header": {"X-Task": "sums"}}, "kv_cache_dtype": "bfloat16"},
    {"name": "chat", "match": {"model": "chat"}, "kv_cache_dtype": "int8",
     "on_drift": {"max_kl": 0.05, "kv_cache_dtype": "bfloat16"}}]}


def test_policy(tiny, serve, tmp_path):
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(POLICY))
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "4MiB", "--kv-cache-dtype", "int8", "--kv-policy", file,
                   "--drift-sample", "0.001", "--served-model-name", "rand", "chat")

    def how(headers=None, **fields):
        answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 2} | fields, headers=headers)
        assert answer.status == 200, answer.body
        return answer.json["masu"]["kv_cache_dtype"], answer.json["masu"].get("why")
    key = {"Authorization": "Bearer sk-legal"}
    assert how(key) == ("bfloat16", "policy:legal")
    assert how(key, kv_cache_dtype="int8") == ("int8", None), "what a request says goes first"
    assert how({"x-task": "sums"}) == ("bfloat16", "policy:sums")
    assert how({"x-task": "chat"}) == how() == how(model="chat") == ("int8", None)
    assert server.metric("kv_class_moved") == 0
    assert "sk-legal" not in server.log


def test_example_policy(tiny, serve):
    """docs/kv_policy.json, with the key that its digest is of."""
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "4MiB", "--kv-cache-dtype", "int8", "--drift-sample", "0.001",
                   "--kv-policy", ROOT / "docs/kv_policy.json", "--api-key", "one")
    answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 2}, headers={"Authorization": "Bearer one"})
    assert answer.json["masu"]["why"] == "policy:accounting"


@pytest.mark.parametrize("policy, flags, named", [
    ({"rulez": []}, [], "rulez"), ({"default": {"kv_cache_dtype": "int4"}}, [], "--kv-cache-dtype-choices int4"),
    ({"default": {"kv_cache_dtype": "int9"}}, [], "int9"), (POLICY, [], "no model 'chat'"),
    ({"default": {"on_drift": {"max_kl": 1, "kv_cache_dtype": "bf16"}}}, [], "--drift-sample"),
    ({}, ["--retry-on-degeneration", "--kv-cache-dtype-choices", "none"], "--kv-cache-dtype-choices auto")], ids=str)
def test_refused_at_start(tiny, tmp_path, policy, flags, named):
    """One line, and before weights are read."""
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(policy))
    result = subprocess.run([BINARY, "serve", tiny.rand(), "--port", "0", "--kv-cache-memory-bytes", "1MiB", "--kv-cache-dtype", "int8",
                             "--kv-policy", file, *flags], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("masu: ") and named in last, result.stderr
    assert "packing" not in result.stderr and "reading" not in result.stderr, result.stderr


# --- retries ---------------------------------------------------------------------------------------------------------------

def test_retry(tiny, serve):
    """Models that degenerate at every precision: retried once, and said so."""
    flags = "--kv-cache-memory-bytes", "4MiB", "--kv-cache-dtype", "int8", "--retry-on-degeneration"
    broken = serve(tiny.chain("broken", ['{"a"', ": 1, ", '"b": ']), *flags)
    answer = broken.complete("x", max_tokens=40)
    assert answer["choices"][0]["text"] == '{"a": 1, "b": ' and answer["choices"][0]["finish_reason"] == "stop"
    assert answer["masu"] == {"kv_cache_dtype": "bfloat16", "kv_scale": "none", "why": "retry:json"}
    assert broken.metric("degeneration_retries_total", reason="json", outcome="same") == 1
    assert broken.metric("engine_requests_received_total") == 2
    loop = serve(tiny.chain("loop", ["alpha", " be", "ta ga", "mma del", "ta"], loop_to=0), *flags)
    answer = loop.complete("x", max_tokens=200)
    assert answer["masu"]["why"] == "retry:repetition" and answer["usage"]["completion_tokens"] == 200
    assert loop.stream_complete("x", max_tokens=200).chunks[-1]["masu"]["kv_cache_dtype"] == "int8"
    assert loop.complete("x", max_tokens=30)["masu"]["kv_cache_dtype"] == "int8"
    assert loop.metric("degeneration_retries_total", reason="repetition", outcome="same") == 1
    assert loop.metric("engine_requests_received_total") == 4
