"""Prompts that begin alike share pages, within one API key and one salt: bug reports B207, B213, B409 and B703."""
import pytest
from serving import in_parallel, wait_until

PROMPT = [300 + i % 150 for i in range(100)]


def ask(server, prompt=PROMPT, key=None, **fields):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 2} | fields
    answer = server.post("/v1/completions", body, headers=headers)
    assert answer.status == 200, answer.body
    return answer.json


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "fp8", "fp8_e5m2", "int8"])
def test_a_hit_changes_nothing_but_the_usage(tiny, serve, dtype):
    flags = "--kv-cache-memory-bytes", "4MiB", "--kv-cache-dtype", dtype
    server, cold = serve(tiny.rand(), *flags), serve(tiny.rand(), *flags, "--no-enable-prefix-caching")
    assert server.cache()["enable_prefix_caching"] == "True" and cold.cache()["enable_prefix_caching"] == "False"
    for length in (15, 16, 17, 31, 32, 33, 100):
        prompt = [(length * 7 + i) % 150 + 300 for i in range(length)]
        first, second, expected = ask(server, prompt), ask(server, prompt), ask(cold, prompt)
        assert first["choices"] == second["choices"] == expected["choices"], length
        assert (cached(first), cached(second), cached(expected)) == (0, (length - 1) // 16 * 16, 0)
        more = prompt + [400, 401]
        assert ask(server, more)["choices"] == ask(cold, more)["choices"]
    assert cold.metric("prefix_cache_queries_total") == 0


def test_keys_and_salts_share_nothing(tiny, serve):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "4MiB", "--api-key", "one", "--api-key", "two")
    cases = [("one", None, 0), ("two", None, 0), ("one", None, 96), ("two", None, 96), ("one", "a", 0), ("one", "a", 96),
             ("one", "b", 0), ("two", "a", 0), ("one", None, 96)]
    for key, salt, expected in cases:
        answer = ask(server, key=key, **({"cache_salt": salt} if salt else {}))
        assert cached(answer) == expected, (key, salt)
    for bad in ("", 5, ["a"], {"a": 1}, True):
        refused = server.post("/v1/completions", {"prompt": PROMPT, "cache_salt": bad}, headers={"Authorization": "Bearer one"})
        assert refused.status == 400 and refused.error["param"] == "cache_salt", bad
    assert "salt" not in server.log


def test_a_conversation_reads_its_own_past(tiny, serve):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "4MiB")
    prompt, last = list(PROMPT), None
    for turn in range(4):
        answer = ask(server, prompt, return_token_ids=True, max_tokens=20)
        if last is not None:  # all whole pages of the last turn, but for its last token
            assert cached(answer) == (last - 1) // 16 * 16, turn
        prompt += answer["choices"][0]["token_ids"]
        last = len(prompt)
        prompt += [320 + turn]


def test_counters_are_those_of_the_answers(tiny, serve):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "2MiB")
    answers = [ask(server, PROMPT[:64] + [400 + i, 401]) for i in range(10)]
    answers += in_parallel(lambda i: ask(server, PROMPT[: 20 + 7 * i]), range(10))
    hits, queries = server.metric("prefix_cache_hits_total"), server.metric("prefix_cache_queries_total")
    assert hits == sum(map(cached, answers)) > 500
    assert queries == sum(answer["usage"]["prompt_tokens"] for answer in answers) == server.metric("prompt_tokens_total")
    wait_until(server.is_idle, 2, "idle")
    assert server.metric("kv_pages_cached") > 0 and server.metric("kv_cache_usage_perc") == 0
    assert (server.metric("prefix_cache_hits_total"), server.metric("prefix_cache_queries_total")) == (hits, queries)


def test_echoed_logprobs_come_with_a_hit_too(tiny, serve):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "2MiB")
    for length in (15, 16, 17, 33):
        prompt = PROMPT[:length]
        plain, first, second = ask(server, prompt), ask(server, prompt, echo=True), ask(server, prompt, echo=True)
        assert first["choices"] == second["choices"], length
        assert None not in first["choices"][0]["logprobs"]["token_logprobs"][1:]
        assert first["choices"][0]["logprobs"]["token_logprobs"][length:] == plain["choices"][0]["logprobs"]["token_logprobs"]


def test_streams_say_it_at_the_end(tiny, serve):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "2MiB")
    ask(server)
    stream = server.stream_complete(PROMPT, max_tokens=5, stream_options={"include_usage": True})
    assert stream.chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 96}
