"""Start and end of the server: progress while it loads, signals at any time."""
import re
import signal
import subprocess
import threading
import time

import pytest
from serving import Server, read_chunks, strict_json, wait_until

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(scope="module")
def slow_model(tiny):
    """Large enough that loading takes a while."""
    return tiny.rand("slow", hidden=1024, heads=16, kv_heads=8, head_dim=64, ffn=4096, layers=6)


def test_progress_while_loading(slow_model, logs):
    """/health answers 503 with growing progress, then 200; other routes answer 503 with Retry-After."""
    server = Server(slow_model, "--kv-cache-memory-bytes", "16MiB", logs=logs).spawn()
    assert server.get("/version").status == 200 and server.get("/livez").status == 200
    seen = []
    for path, body in (("/v1/completions", {"prompt": "x"}), ("/v1/chat/completions", {"messages": []}), ("/v1/models", None)):
        answer = server.request("POST" if body else "GET", path, body)
        assert answer.status == 503 and answer.error["code"] == 503, f"{path}: {answer.body}"
        assert int(answer.headers["Retry-After"]) >= 1
    for path in ("/ready", "/readyz"):
        assert server.get(path).status == 503

    def ready():
        answer = server.get("/health")
        if answer.status == 503:
            seen.append(strict_json(answer.body))
        return answer.status == 200
    wait_until(ready, 120, "readiness")
    assert len(seen) > 3
    progress = [numbers_in(body) for body in seen]
    assert all(progress), seen[0]
    figures = [max(numbers) for numbers in progress]
    assert figures[0] < figures[-1] or len(set(map(str, seen))) > 2, seen
    assert server.get("/ready").status == 200 and server.get("/readyz").status == 200
    assert server.stop()[0] == 0


def numbers_in(value):
    """Numbers between 0 and 100 anywhere in a JSON value, but for the status code."""
    if isinstance(value, dict):
        return [number for key, part in value.items() if key != "code" for number in numbers_in(part)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


@pytest.mark.parametrize("sign", SIGNALS)
def test_end_while_loading(slow_model, logs, sign):
    server = Server(slow_model, "--kv-cache-memory-bytes", "16MiB", logs=logs).spawn()
    assert server.get("/health").status == 503
    status, seconds = server.stop(sign)
    assert status == 0 and seconds < 2, "it does not wait for the loader"


@pytest.mark.parametrize("sign", SIGNALS)
def test_end_at_once(tiny, logs, sign):
    """Before it even listens."""
    server = Server(tiny.rand(), "--kv-cache-memory-bytes", "16MiB", logs=logs)
    for delay in (0.0, 0.01, 0.05, 0.1):
        process = subprocess.Popen(server.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        time.sleep(delay)
        process.send_signal(sign)
        output, _ = process.communicate(timeout=20)
        # Before main() runs there is nobody to catch it.
        assert process.returncode == 0 or process.returncode == -sign and output == b"", (delay, process.returncode, output)


@pytest.mark.parametrize("sign", SIGNALS)
def test_end_while_idle(tiny, logs, sign):
    server = Server(tiny.rand(), "--kv-cache-memory-bytes", "16MiB", logs=logs).start()
    status, seconds = server.stop(sign)
    assert status == 0 and seconds < 3


@pytest.mark.parametrize("sign", SIGNALS)
def test_end_while_streaming(tiny, logs, sign):
    """Streams end, with an error event or cut off, never as if they were complete; who waits gets 503."""
    model = tiny.chain("endless", ["alpha", " be", "ta ga", "mma del", "ta"], loop_to=0, context=131072)
    server = Server(model, "--kv-cache-memory-bytes", "64MiB", "--max-num-seqs", "4", logs=logs).start()
    body = {"prompt": "hello", "max_tokens": 100000, "stream": True, "temperature": 0}
    streams = [server.raw("/v1/completions", body) for _ in range(4)]
    for connection in streams:
        read_chunks(connection, 2)
    tails = [b""] * 4

    def drain(i):
        streams[i].settimeout(20)
        while piece := streams[i].recv(65536):
            tails[i] = (tails[i] + piece)[-2000:]
    threads = [threading.Thread(target=drain, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    waiting = server.raw("/v1/completions", body | {"stream": False})
    wait_until(lambda: server.metric("num_requests_waiting") == 1, 10, "one waits")
    status, seconds = server.stop(sign)
    assert status == 0 and seconds < 5, server.log
    for thread in threads:
        thread.join()
    for tail in tails:
        assert b'"finish_reason":"stop"' not in tail and b'"finish_reason":"length"' not in tail
        if b"[DONE]" in tail:
            assert b'"error":{' in tail
    waiting.settimeout(5)
    first = waiting.recv(1000)
    assert first == b"" or first.startswith(b"HTTP/1.1 503"), first


def test_second_signal_ends_at_once(tiny, logs):
    server = Server(tiny.rand(), "--kv-cache-memory-bytes", "16MiB", logs=logs).start()
    server.process.send_signal(signal.SIGINT)
    status, seconds = server.stop(signal.SIGINT)
    assert seconds < 3 and status in (0, 130, -signal.SIGINT)


def test_server_outlives_the_reader_of_its_log(tiny, logs):
    """`masu serve ... 2>&1 | head`: the pipe is gone, the server stays and still ends with 0."""
    server = Server(tiny.rand(), "--kv-cache-memory-bytes", "16MiB", logs=logs)
    server.process = subprocess.Popen(server.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    server.port = int(re.search(r":(\d+)", server.process.stdout.readline())[1])
    server.process.stdout.close()
    wait_until(server.is_ready, 60, "readiness")
    assert server.complete("hello", max_tokens=1)["usage"]["completion_tokens"] == 1
    assert server.stop()[0] == 0


def test_port_zero_and_binding(tiny, serve):
    """Listens on 127.0.0.1 only, unless told otherwise."""
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "1MiB")
    addresses = listening(server)
    assert addresses == ["0100007F"], addresses
    everywhere = serve(tiny.rand(), "--kv-cache-memory-bytes", "1MiB", "--host", "127.0.0.1")
    assert everywhere.port != server.port


def listening(server):
    """Local addresses, in the kernel's spelling, on which the server's port is open."""
    found = []
    for name in ("tcp", "tcp6"):
        with open(f"/proc/{server.process.pid}/net/{name}") as file:
            for line in list(file)[1:]:
                local, state = line.split()[1], line.split()[3]
                if state == "0A" and int(local.split(":")[1], 16) == server.port:
                    found.append(local.split(":")[0])
    return found
