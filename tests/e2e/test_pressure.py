"""A cache that is too small: bug reports B301, B303, B304 and B310, and priorities."""
import random
import subprocess
import threading
import time

import pytest
from serving import Server, abort_socket, in_parallel, read_chunks, wait_until

PAGE = 16


def pages(server_or_bytes_per_token, count):
    """The flag for a cache of that many pages."""
    return "--kv-cache-memory-bytes", int(server_or_bytes_per_token) * PAGE * count


@pytest.fixture(scope="module")
def rand_token_bytes(rand_server):
    """Bytes of one token of T-RAND in bfloat16."""
    return int(rand_server.metric("kv_bytes_per_token"))


def prompt_of(length, seed=0):
    rng = random.Random(length * 1000 + seed)
    return [rng.randrange(6, 512) for _ in range(length)]


# --- B301: what can never fit --------------------------------------------------------------------------------------------

def test_prompt_larger_than_the_cache(tiny, serve, rand_token_bytes):
    """Eight pages hold 128 tokens: a prompt of 200 is refused at once, by start-up or with 400, and starves nobody."""
    server = Server(tiny.rand(), *pages(rand_token_bytes, 8), "--max-model-len", "512", logs=tiny.folder)
    result = subprocess.run(server.command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1, "a context that the cache cannot hold is refused when it was asked for"
    assert "512" in result.stderr and "128" in result.stderr, result.stderr
    small = serve(tiny.rand(), *pages(rand_token_bytes, 8))
    assert small.metric("kv_pages") == 8
    limit = small.get("/v1/models").json["data"][0]["max_model_len"]
    assert limit <= 128, "the context was shrunk to what fits, and it says so"
    assert "128" in small.log
    started = time.monotonic()
    jobs = [(200, None)] + [(10, 8)] * 10
    answers = in_parallel(lambda job: small.post("/v1/completions", {"prompt": prompt_of(job[0]), "max_tokens": job[1]}), jobs)
    assert answers[0].status == 400 and str(limit) in answers[0].error["message"]
    assert [answer.status for answer in answers[1:]] == [200] * 10
    assert time.monotonic() - started < 20
    # A prompt that fits, with an answer that does not.
    answer = small.post("/v1/completions", {"prompt": prompt_of(100), "max_tokens": 100})
    assert answer.status == 400
    assert small.complete(prompt_of(100), max_tokens=limit - 100)["usage"]["completion_tokens"] == limit - 100
    wait_until(small.is_idle, 2, "idle")


def test_choices_that_never_fit_together(tiny, serve, rand_token_bytes):
    """n=8 with a prompt that fills half of the cache each: all are answered, one after another."""
    small = serve(tiny.rand(), *pages(rand_token_bytes, 8))
    answer = small.complete(prompt_of(60), n=8, max_tokens=20, temperature=1, seed=3, return_token_ids=True)
    assert [len(choice["token_ids"]) for choice in answer["choices"]] == [20] * 8
    wait_until(small.is_idle, 2, "idle")


# --- B303: many choices, no swap space ------------------------------------------------------------------------------------

@pytest.mark.parametrize("swap", ["0", "4"])
def test_choices_under_pressure(tiny, serve, swap):
    """40 requests with n=4 and 64 tokens each in a cache for about four of them."""
    model = tiny.flat("flat-all")
    probe = serve(model, "--kv-cache-memory-bytes", "1MiB")
    token_bytes = probe.metric("kv_bytes_per_token")
    server = serve(model, *pages(token_bytes, 24), "--swap-space", swap)
    bodies = [{"seed": i, "n": 4, "temperature": 1, "max_tokens": 64, "return_token_ids": True, "ignore_eos": True}
              for i in range(40)]
    answers = in_parallel(lambda body: server.complete("hello", **body), bodies)
    assert all(len(choice["token_ids"]) == 64 for answer in answers for choice in answer["choices"])
    assert sum(len(answer["choices"]) for answer in answers) == 160
    assert server.metric("num_preemptions_total") > 0
    wait_until(server.is_idle, 2, "idle")
    alone = server.complete("hello", **bodies[17])
    assert [c["token_ids"] for c in alone["choices"]] == [c["token_ids"] for c in answers[17]["choices"]]


# --- B304: preempted and recomputed ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "fp8", "fp8_e5m2", "int8"])
def test_preemption_is_unseen(tiny, serve, dtype):
    """The same ids, logprobs, text and usage as with room for all, in every encoding."""
    flags = "--kv-cache-dtype", dtype
    large = serve(tiny.rand(), "--kv-cache-memory-bytes", "16MiB", *flags)
    small = serve(tiny.rand(), *pages(large.metric("kv_bytes_per_token"), 30), *flags)
    fields = {"max_tokens": 200, "logprobs": 1, "ignore_eos": True, "return_token_ids": True}
    prompts = [prompt_of(3 + i * 57 // 15, seed=7) for i in range(16)]
    expected = in_parallel(lambda prompt: large.complete(prompt, **fields), prompts)
    assert large.metric("num_preemptions_total") == 0
    streamed = in_parallel(lambda prompt: small.stream_complete(prompt, **fields, stream_options={"include_usage": True}),
                           prompts)
    assert small.metric("num_preemptions_total") > 4
    for want, got in zip(expected, streamed):
        choice = want["choices"][0]
        assert got.token_ids[0] == choice["token_ids"] and len(choice["token_ids"]) == 200
        assert got.logprobs[0] == choice["logprobs"]["token_logprobs"]
        assert got.text() == choice["text"]
        assert got.chunks[-1]["usage"] == want["usage"]
    wait_until(small.is_idle, 2, "idle")
    assert small.metric("kv_page_checks_total", boundary="step", result="mismatch") == 0


# --- priorities -----------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def loop_model(tiny):
    return tiny.chain("endless", ["alpha", " be", "ta ga", "mma del", "ta"], loop_to=0, context=131072)


def test_priority_goes_first(loop_model, serve):
    """Of those that wait, the smallest number is served first; with fcfs the order is that of arrival."""
    for policy, expected in (("priority", [1, 2, 3, 4, 5]), ("fcfs", [5, 3, 1, 4, 2])):
        server = serve(loop_model, "--kv-cache-memory-bytes", "64MiB", "--max-num-seqs", "1",
                       "--max-num-queued-reqs", "9", "--scheduling-policy", policy)
        blocker = server.raw("/v1/completions", {"prompt": "hello", "max_tokens": 100000})
        wait_until(lambda: server.metric("num_requests_running") == 1, 10, "the first one runs")
        order, threads = [], []

        def ask(priority):
            server.complete("hello", max_tokens=300, priority=priority)
            order.append(priority)
        for count, priority in enumerate([5, 3, 1, 4, 2], 1):
            threads.append(threading.Thread(target=ask, args=[priority]))
            threads[-1].start()
            wait_until(lambda: server.metric("num_requests_waiting") == count, 10, f"{count} wait")
        blocker.close()
        for thread in threads:
            thread.join()
        assert order == expected
        server.stop()


def test_priority_preempts(loop_model, serve):
    """When pages run out the request with the largest number loses them, and still gives its whole answer."""
    probe = serve(loop_model, "--kv-cache-memory-bytes", "1MiB")
    # The unimportant one fills the cache but for the last pages, so the two meet there whenever the important one comes.
    server = serve(loop_model, *pages(probe.metric("kv_bytes_per_token"), 1000), "--scheduling-policy", "priority",
                   "--max-model-len", "16000")
    done = {}

    def ask(priority, tokens):
        # Salts: equal answers would share their pages.
        answer = server.complete("hello", max_tokens=tokens, priority=priority, cache_salt=f"salt {priority}")
        done[priority] = time.monotonic(), answer["choices"][0]["text"], answer["usage"]["completion_tokens"]
    low = threading.Thread(target=ask, args=[9, 15900])
    low.start()
    wait_until(lambda: server.metric("kv_pages_used") >= 5, 10, "the unimportant one is under way")
    ask(0, 8000)
    low.join()
    assert server.metric("num_preemptions_total") > 0
    assert done[0][0] < done[9][0], "the important one came later and ended first"
    assert done[0][2] == 8000 and done[9][2] == 15900
    assert done[9][1].startswith(done[0][1])


# --- B310: aborts at any moment -------------------------------------------------------------------------------------------

def random_aborts(server, reference, rounds, rng):
    """Each round: 64 streams, most of them cut at a random moment. Returns how many survived."""
    def one(plan):
        limit, chunks, seconds, brutal, priority = plan
        body = {"prompt": "hello", "max_tokens": limit, "temperature": 0, "stream": True, "priority": priority}
        if chunks is None:
            text = server.stream_complete("hello", max_tokens=limit, priority=priority).text()
            assert text == reference[:len(text)] and len(text) > limit
            return 1
        connection = server.raw("/v1/completions", body)
        if chunks:
            read_chunks(connection, min(chunks, limit))
        time.sleep(seconds)
        (abort_socket if brutal else lambda c: c.close())(connection)
        return 0
    survivors = 0
    for _ in range(rounds):
        plans = []
        for _ in range(64):
            limit = rng.randint(1, 60)
            # None: read to the end; 0: go before the first byte; limit: go exactly at the end.
            chunks = rng.choice([None, 0, 1, limit // 2, limit, limit])
            plans.append((limit, chunks, rng.choice([0, 0, 0.002, 0.02]), rng.random() < 0.5, rng.randrange(3)))
        survivors += sum(in_parallel(one, plans))
    return survivors


def check_random_aborts(server, rounds, seed):
    reference = server.complete("hello", max_tokens=100)["choices"][0]["text"]
    before = {name: server.metric(f"engine_requests_{name}_total") for name in ("received", "finished", "aborted", "failed")}
    survivors = random_aborts(server, reference, rounds, random.Random(seed))
    wait_until(server.is_idle, 5, "idle after the aborts")
    delta = {name: server.metric(f"engine_requests_{name}_total") - value for name, value in before.items()}
    assert delta["received"] == delta["finished"] + delta["aborted"] and delta["failed"] == 0, delta
    assert delta["aborted"] > rounds and delta["finished"] >= survivors > rounds
    assert server.metric("num_preemptions_total") > 0
    assert server.metric("kv_page_checks_total", boundary="step", result="mismatch") == 0
    assert server.complete("hello", max_tokens=100)["choices"][0]["text"] == reference


@pytest.fixture
def cramped_server(loop_model, serve):
    """Ten pages, where up to 64 streams of up to 60 tokens meet, with priorities."""
    probe = serve(loop_model, "--kv-cache-memory-bytes", "1MiB")
    return serve(loop_model, *pages(probe.metric("kv_bytes_per_token"), 10), "--scheduling-policy", "priority")


def test_aborts_at_random_moments(cramped_server):
    check_random_aborts(cramped_server, 12, seed=310)


@pytest.mark.soak
def test_ten_thousand_aborts(cramped_server):
    check_random_aborts(cramped_server, 160, seed=311)
