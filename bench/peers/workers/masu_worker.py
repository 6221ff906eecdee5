"""masu, in one of two ways. Where it was built, its engine in a process (bench/peers/engine_worker_main.cc), as with the peers; else
`masu serve` asked over loopback with token ids, which is more than the peers do: those times hold HTTP, JSON and detokenizing too."""
import http.client
import json
import os
import re
import subprocess
import sys
import time

from protocol import Options, fresh_prompt, prompts, serve

START_SECONDS = 120


def version_of(binary):
    return subprocess.run([binary, "version"], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()[0]


class MasuEngine:
    """Sequences of their own are not computed: the benchmark's hook of the engine fills their pages with random numbers. Shared ones
    hit the prefix cache."""

    def __init__(self, options):
        self.options = options
        arguments = {"kv": options.kv, "threads": options.threads, "prefix_caching": options.fill == "shared",
                     "activations": options.activations}
        sizes = {"model": options.model, "cache_bytes": options.cache_bytes, "sequences": options.sequences, "context": options.context}
        self.engine = subprocess.Popen([options.engine, json.dumps(arguments | sizes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        hello = self.reply()
        self.version = version_of(options.binary)
        self.flags = " ".join(f"{name}={value}" for name, value in (arguments | hello).items())

    def reply(self):
        line = self.engine.stdout.readline()
        if not line:
            raise RuntimeError(f"{os.path.basename(self.options.engine)} ended with status {self.engine.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def run(self, token_lists, tokens, filled=False):
        """Seconds to the first token of all, and from there to their last."""
        self.engine.stdin.write(json.dumps({"prompts": token_lists, "tokens": tokens, "filled": filled}).encode() + b"\n")
        self.engine.stdin.flush()
        reply = self.reply()
        return reply["first"], reply["rest"]

    def prefill(self, context, sample):
        return self.run([fresh_prompt(self.options, context, sample)], 1)[0]

    def fill(self, concurrency, context):
        lists = prompts(self.options, concurrency, context)
        own = self.options.fill == "own"
        return self.run(lists if own else lists[:1], 1, own)[0]

    def decode(self, concurrency, context, steps):
        return self.run(prompts(self.options, concurrency, context), 1 + steps, self.options.fill == "own")[1]


class MasuServer:
    """A decode is the difference of two calls, for 1 + K tokens and for one, that are alike up to the first token."""

    def __init__(self, options):
        self.options = options
        fixed = ["--kv-cache-dtype", options.kv, "--kv-cache-dtype-choices", "none", "--threads", str(options.threads),
                 "--swap-space", "0", "--kv-guard", "off", "--activation-dtype", options.activations]
        sizes = ["--kv-cache-memory-bytes", str(options.cache_bytes), "--max-num-seqs", str(options.sequences), "--max-model-len",
                 str(options.context)]
        self.flags = " ".join(fixed)
        self.log = open(options.log, "w+b")
        self.server = subprocess.Popen([options.binary, "serve", options.model, "--port", "0", *fixed, *sizes], stdout=self.log,
                                       stderr=subprocess.STDOUT)
        self.version = version_of(options.binary)
        self.connection = self.wait()

    def wait(self):
        """The connection, once the model is loaded."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.log.seek(0)
            said = self.log.read().decode(errors="replace")
            if self.server.poll() is not None:
                raise RuntimeError(f"masu serve ended: {said.splitlines()[-1] if said else 'without a word'}")
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", said):
                connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=600)
                connection.request("GET", "/health")
                response = connection.getresponse()
                response.read()
                if response.status == 200:
                    return connection
            time.sleep(0.1)
        raise RuntimeError(f"masu serve is not ready after {START_SECONDS} s")

    def complete(self, token_lists, tokens):
        """Seconds of one call that gives each prompt `tokens` tokens."""
        body = json.dumps({"prompt": token_lists, "max_tokens": tokens, "ignore_eos": True, "temperature": 0})
        start = time.perf_counter()
        self.connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        text = response.read()
        seconds = time.perf_counter() - start
        reply = json.loads(text)
        if response.status != 200:
            raise RuntimeError(reply["error"]["message"])
        made = reply["usage"]["completion_tokens"]
        if made != tokens * len(token_lists):
            raise RuntimeError(f"{made} tokens instead of {tokens * len(token_lists)}")
        return seconds

    def prefill(self, context, sample):
        return self.complete([fresh_prompt(self.options, context, sample)], 1)

    def fill(self, concurrency, context):
        """The prefix cache then holds the prompts."""
        lists = prompts(self.options, concurrency, context)
        return self.complete(lists[:1] if self.options.fill == "shared" else lists, 1)

    def decode(self, concurrency, context, steps):
        lists = prompts(self.options, concurrency, context)
        first = self.complete(lists, 1)
        return self.complete(lists, 1 + steps) - first


options = Options(**json.loads(sys.argv[1]))
serve(MasuEngine if options.engine else MasuServer)
