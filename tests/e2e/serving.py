"""What the end-to-end tests share: a server process, plain HTTP to it, and tiny models.

Everything here speaks to masu as a stranger would: over sockets, through the command line and /proc.
"""
import concurrent.futures
import contextlib
import http.client
import json
import math
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("MASU_BINARY", ROOT / "build/release/masu"))
TINY_MODEL_MAKER = BINARY.parent / "tests/make_tiny_model"

# Generous: the machine may be busy. A test that asserts a time names its own limit.
START_SECONDS = 120
REQUEST_SECONDS = 180


def wait_until(condition, seconds, what):
    """Polls until `condition()` is true and returns its value; the failure names `what`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def strict_json(text):
    """JSON as the standard has it: NaN and Infinity are errors, and so is a repeated key."""
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    def unique(pairs):
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), f"repeated key in {keys}"
        return dict(pairs)
    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return strict_json(self.body)

    @property
    def error(self):
        return self.json["error"]


class Server:
    """`masu serve` on a free port. Use as a context manager, or start() and stop()."""

    def __init__(self, model, *arguments, logs, env=None):
        self.command = [str(BINARY), "serve", str(model), "--port", "0", *map(str, arguments)]
        self.env = os.environ | (env or {})
        self.log_path = pathlib.Path(logs) / f"serve-{time.monotonic_ns()}.log"
        self.process = None
        self.port = None
        self.model = pathlib.Path(model).stem

    def spawn(self):
        """Starts the process and waits until it listens; the model still loads."""
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT, env=self.env)
        found = wait_until(lambda: re.search(r"http://127\.0\.0\.1:(\d+)", self.log) or self.process.poll() is not None,
                           START_SECONDS, "the server listens")
        assert found is not True, f"masu serve ended with status {self.process.returncode}:\n{self.log}"
        self.port = int(found[1])
        return self

    def start(self):
        self.spawn()
        wait_until(self.is_ready, START_SECONDS, "/health answers 200")
        return self

    def is_ready(self):
        assert self.process.poll() is None, f"masu serve ended with status {self.process.returncode}:\n{self.log}"
        return self.get("/health").status == 200

    def stop(self, sign=signal.SIGTERM, seconds=20):
        """Ends the server, returns its exit status and how long that took."""
        started = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(sign)
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"still there {seconds} s after signal {sign}:\n{self.log}") from None
        return status, time.monotonic() - started

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        status, _ = self.stop()
        assert status == 0, f"masu serve ended with status {status}:\n{self.log}"

    @property
    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    # --- requests -----------------------------------------------------------------------------------------------

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS)
        with contextlib.closing(connection):
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            if isinstance(body, str):
                body = body.encode()
            connection.request(method, path, body, {"Content-Type": "application/json"} | (headers or {}))
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read().decode())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body, **options):
        return self.request("POST", path, body, **options)

    def ok(self, path, body):
        answer = self.post(path, body)
        assert answer.status == 200, f"{answer.status} {answer.body}\nfor {body}"
        return answer.json

    def complete(self, prompt, **fields):
        return self.ok("/v1/completions", {"prompt": prompt, "temperature": 0} | fields)

    def chat(self, content, **fields):
        messages = [{"role": "user", "content": content}]
        return self.ok("/v1/chat/completions", {"messages": messages, "temperature": 0} | fields)

    def events(self, path, body):
        """The chunks of a stream, checked: status 200, SSE, each a JSON object, [DONE] last."""
        answer = self.post(path, body | {"stream": True})
        assert answer.status == 200, f"{answer.status} {answer.body}\nfor {body}"
        assert answer.headers["Content-Type"].replace(" ", "") == "text/event-stream;charset=utf-8"
        assert answer.body.endswith("\n\n"), answer.body[-200:]
        lines = [line for line in answer.body[:-2].split("\n\n") if not line.startswith(":")]
        assert all(line.startswith("data: ") and "\n" not in line for line in lines), answer.body
        assert lines[-1] == "data: [DONE]" and lines.count("data: [DONE]") == 1, lines[-2:]
        return [strict_json(line[6:]) for line in lines[:-1]]

    def stream_complete(self, prompt, **fields):
        return Streamed(self.events("/v1/completions", {"prompt": prompt, "temperature": 0} | fields))

    def stream_chat(self, content, **fields):
        messages = [{"role": "user", "content": content}]
        return Streamed(self.events("/v1/chat/completions", {"messages": messages, "temperature": 0} | fields))

    def raw(self, path, body):
        """A socket with a request sent and nothing read."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        payload = json.dumps(body).encode()
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: masu\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        return connection

    # --- what it says of itself ---------------------------------------------------------------------------------

    def metric(self, name, **labels):
        """One sample of /metrics, by its name without prefix."""
        found = [value for labels_of, value in self.samples(name) if labels.items() <= labels_of.items()]
        assert len(found) == 1, f"{len(found)} samples of {name} with {labels}"
        return found[0]

    def samples(self, name):
        from prometheus_client.parser import text_string_to_metric_families
        return [(sample.labels, sample.value)
                for family in text_string_to_metric_families(self.get("/metrics").body)
                for sample in family.samples if sample.name == f"masu:{name}"]

    def is_idle(self):
        """Nothing runs or waits and no page is held."""
        text = self.get("/metrics").body
        values = dict(re.findall(r"^masu:(\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE))
        return all(float(values[name]) == 0 for name in
                   ("num_requests_running", "num_requests_waiting", "kv_pages_used", "requests_in_flight"))

    def cache(self):
        """The labels of cache_config_info."""
        (labels, value), = self.samples("cache_config_info")
        assert value == 1
        return labels

    def memory(self, field="RssAnon"):
        """Bytes of a field of /proc/PID/status."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)[1]) * 1024

    def descriptors(self):
        """Its open files and sockets."""
        return pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()


class Streamed:
    """The chunks of one stream, put together by choice."""

    def __init__(self, chunks):
        self.chunks = chunks
        self.ids = {chunk["id"] for chunk in chunks}
        self.deltas, self.finish, self.stop_reason, self.logprobs, self.token_ids = {}, {}, {}, {}, {}
        for chunk in chunks:
            for choice in chunk["choices"]:
                self._add(choice)

    def _add(self, choice):
        index = choice["index"]
        text = choice["delta"].get("content") if "delta" in choice else choice["text"]
        self.deltas.setdefault(index, []).append(text or "")
        assert index not in self.finish, "a chunk after the one with finish_reason"
        if choice.get("finish_reason"):
            self.finish[index] = choice["finish_reason"]
            self.stop_reason[index] = choice.get("stop_reason")
        if choice.get("logprobs"):
            entries = choice["logprobs"]
            self.logprobs.setdefault(index, []).extend(
                entries["content"] if "content" in entries else entries["token_logprobs"])
        self.token_ids.setdefault(index, []).extend(choice.get("token_ids") or [])

    def text(self, index=0):
        return "".join(self.deltas[index])


def abort_socket(connection):
    """Closes with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def read_chunks(connection, count):
    """Reads until `count` SSE events have arrived; returns the bytes."""
    data = b""
    while data.count(b"data: ") < count:
        piece = connection.recv(65536)
        assert piece, f"the stream ended after {data!r}"
        data += piece
    return data


def in_parallel(function, items, workers=None):
    """[function(item) for item in items], all at once; the first exception is raised."""
    items = list(items)
    with concurrent.futures.ThreadPoolExecutor(workers or len(items)) as pool:
        return list(pool.map(function, items))


def finite_numbers(value):
    """Every number in a JSON value is finite."""
    if isinstance(value, dict):
        return all(map(finite_numbers, value.values()))
    if isinstance(value, list):
        return all(map(finite_numbers, value))
    return not isinstance(value, float) or math.isfinite(value)


class TinyModels:
    """Makes T-RAND (with k_spike: T-KBIAS), T-FLAT and T-CHAIN files, each once."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.made = {}

    def _make(self, kind, name, arguments):
        path = self.folder / f"{name}.gguf"
        if path not in self.made:
            command = [str(TINY_MODEL_MAKER), kind, "--out", str(path), *map(str, arguments)]
            self.made[path] = arguments, json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert self.made[path][0] == arguments, f"{name} was made with {self.made[path][0]}"
        return path

    def rand(self, name="rand", **options):
        flags = [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", value)]
        return self._make("rand", name, flags)

    def flat(self, name="flat", tokens=(), **options):
        flags = [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", value)]
        if tokens:
            flags += ["--tokens", ",".join(map(str, tokens))]
        return self._make("flat", name, flags)

    def chain(self, name, pieces, context=4096, vocab=512, **script):
        """Pieces are text, or bytes where they are not UTF-8."""
        as_json = [{"hex": piece.hex()} if isinstance(piece, bytes) else piece for piece in pieces]
        script_path = self.folder / f"{name}.json"
        script_path.write_text(json.dumps({"pieces": as_json} | script))
        return self._make("chain", name, ["--script", script_path, "--context", context, "--vocab", vocab])

    def script_ids(self, path):
        return self.made[path][1]["script_ids"]
