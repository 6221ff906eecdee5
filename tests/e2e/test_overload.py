"""More than the server can do at once: fair shares, quotas, deadlines, and a shutdown that finishes what runs."""
import signal
import threading

import openai
import pytest
from serving import Server, in_parallel, read_chunks, strict_json, wait_until

SMALL = "--kv-cache-memory-bytes", "64MiB"
ENDLESS = {"prompt": "hello", "max_tokens": 100000, "temperature": 0}


@pytest.fixture(scope="module")
def endless(tiny):
    return tiny.chain("endless", ["alpha", " be", "ta ga", "mma del", "ta"], loop_to=0, context=131072)


def key(name):
    return {"Authorization": f"Bearer {name}"}


class Reader(threading.Thread):
    """Reads a connection to its end, since a client that does not read is cut off; end() is the last of it."""

    def __init__(self, connection):
        super().__init__()
        self.connection, self.data = connection, b""
        connection.settimeout(120)
        self.start()

    def run(self):
        while piece := self.connection.recv(65536):
            self.data = (self.data + piece)[-4000:]

    def end(self):
        self.join()
        return self.data


# --- keys ----------------------------------------------------------------------------------------------------------------

def test_a_flood_of_one_key(serve, endless):
    """Forty requests of one key fill the queue; another key's single one gets in, and is answered next."""
    server = serve(endless, *SMALL, "--max-num-seqs", "1", "--max-num-queued-reqs", "39")
    body = ENDLESS | {"max_tokens": 200}
    flood = [threading.Thread(target=server.post, args=["/v1/completions", body], kwargs={"headers": key("flood")})
             for _ in range(40)]
    blocker = server.raw("/v1/completions", ENDLESS)
    wait_until(lambda: server.metric("num_requests_running") == 1, 20, "one runs")
    for thread in flood[:39]:
        thread.start()
    wait_until(lambda: server.metric("num_requests_waiting") == 39, 60, "the queue is full")
    full = server.post("/v1/completions", body, headers=key("flood"))
    assert full.status == 503 and 1 <= int(full.headers["Retry-After"]) <= 60
    assert "queue is full" in full.error["message"] and server.metric("queue_full_total") == 1
    answers = []
    single = threading.Thread(target=lambda: answers.append(server.post("/v1/completions", body, headers=key("single"))))
    single.start()
    wait_until(lambda: server.metric("num_requests_waiting") == 40, 20, "it waits too")
    blocker.close()
    single.join()
    assert answers[0].status == 200
    assert server.metric("request_success_total", finished_reason="length") < 20, "the flood is not done yet"
    for thread in flood[:39]:
        thread.join()
    wait_until(server.is_idle, 5, "idle")


def test_a_share_of_the_cache(serve, tiny, rand_server):
    """What one key may never hold is refused by the flag's name; answers without max_tokens end where the share does."""
    page = int(rand_server.metric("kv_bytes_per_token")) * 16
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", 32 * page, "--max-kv-share-per-key", "0.25")
    refused = server.post("/v1/completions", {"prompt": [7] * 100, "max_tokens": 29})
    assert refused.status == 400 and "--max-kv-share-per-key" in refused.error["message"]
    assert refused.error["param"] == "input_tokens"
    usage = server.chat("hello", ignore_eos=True)["usage"]
    assert usage["total_tokens"] == 128
    bodies = [({"prompt": [7 + i] * 60, "max_tokens": 60, "ignore_eos": True}, key(name)) for i in range(6) for name in "abc"]
    answers = in_parallel(lambda job: server.post("/v1/completions", job[0], headers=job[1]), bodies)
    assert [answer.json["usage"]["completion_tokens"] for answer in answers] == [60] * 18
    wait_until(server.is_idle, 5, "idle")


# --- deadlines -----------------------------------------------------------------------------------------------------------

def test_deadlines(serve, endless):
    server = serve(endless, *SMALL, "--max-num-seqs", "1")
    late = server.post("/v1/completions", ENDLESS | {"deadline_ms": 300})
    assert late.status == 504 and late.error["type"] == "TimeoutError" and late.error["code"] == 504
    assert "0.3 s" in late.error["message"], late.body
    stream = server.post("/v1/completions", ENDLESS | {"deadline_ms": 2000, "stream": True})
    assert stream.status == 200
    lines = stream.body.strip().split("\n\n")
    assert lines[-1] == "data: [DONE]" and strict_json(lines[-2][6:])["error"]["code"] == 504
    assert len(lines) > 3, "tokens came before the deadline"
    # One that waits is not begun, and does not wait for what runs.
    running = server.raw("/v1/completions", ENDLESS | {"stream": True})
    read_chunks(running, 1)
    prompt_tokens = server.metric("prompt_tokens_total")
    assert server.post("/v1/completions", ENDLESS | {"deadline_ms": 200}).status == 504
    assert server.metric("prompt_tokens_total") == prompt_tokens
    assert server.metric("num_requests_running") == 1 and server.metric("num_requests_waiting") == 0
    running.close()
    wait_until(server.is_idle, 5, "all pages are free")
    assert server.metric("requests_timed_out_total") == 3 and server.metric("engine_requests_timed_out_total") == 3
    assert server.complete("hello", max_tokens=3, deadline_ms=60000)["usage"]["completion_tokens"] == 3
    for wrong in (0, -1, "1s", 2.5):
        answer = server.post("/v1/completions", ENDLESS | {"deadline_ms": wrong})
        assert answer.status == 400 and answer.error["param"] == "deadline_ms"


def test_the_servers_limit(serve, endless):
    """--request-timeout holds for every request; the OpenAI client reports it and does not try again."""
    server = serve(endless, *SMALL, "--request-timeout", "0.3")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=3)
    with pytest.raises(openai.APIStatusError) as raised:
        client.completions.create(model=server.model, prompt="hello", max_tokens=100000)
    assert raised.value.status_code == 504
    assert server.metric("requests_received_total") == 1
    assert server.post("/v1/completions", ENDLESS | {"deadline_ms": 600000}).status == 504
    wait_until(server.is_idle, 5, "all pages are free")


# --- the end -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_finishes_what_runs_and_waits(endless, logs, sign):
    server = Server(endless, *SMALL, "--max-num-seqs", "1", "--shutdown-timeout", "120", logs=logs).start()
    body = {"prompt": "hello", "max_tokens": 6000, "temperature": 0, "stream": True}
    running = server.raw("/v1/completions", body)
    read_chunks(running, 1)
    waiting = server.raw("/v1/completions", body | {"max_tokens": 5, "stream": False})
    wait_until(lambda: server.metric("num_requests_waiting") == 1, 20, "one waits")
    readers = Reader(running), Reader(waiting)
    server.process.send_signal(sign)
    wait_until(lambda: server.get("/health").status == 503, 10, "/health says so")
    assert server.get("/ready").status == 503 and server.get("/livez").status == 200
    refused = server.post("/v1/completions", body)
    assert refused.status == 503 and int(refused.headers["Retry-After"]) >= 1
    assert "stopping" in refused.error["message"]
    end = readers[0].end()
    assert b'"finish_reason":"length"' in end and b"[DONE]" in end
    assert readers[1].end().startswith(b"HTTP/1.1 200")
    assert server.process.wait(20) == 0, server.log


def test_shutdown_ends_the_rest_in_time(endless, logs):
    server = Server(endless, *SMALL, "--shutdown-timeout", "1", logs=logs).start()
    running = server.raw("/v1/completions", ENDLESS | {"stream": True})
    read_chunks(running, 1)
    reader = Reader(running)
    status, seconds = server.stop(seconds=30)
    assert status == 0 and seconds >= 1, server.log
    end = reader.end()
    assert b'"error":{' in end and b"[DONE]" in end and b'"finish_reason":"' not in end


def test_a_second_signal_ends_the_wait(endless, logs):
    server = Server(endless, *SMALL, "--shutdown-timeout", "3600", logs=logs).start()
    running = server.raw("/v1/completions", ENDLESS | {"stream": True})
    read_chunks(running, 1)
    reader = Reader(running)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: server.get("/health").status == 503, 10, "/health says so")
    status, seconds = server.stop(signal.SIGINT)
    assert status == 0 and seconds < 15, server.log
    assert b'"error":{' in reader.end()
