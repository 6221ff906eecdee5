"""masu: `masu serve`, asked over loopback with token ids.

That is more than the peers do, whose engines are called in process: masu's times hold its HTTP, JSON and detokenizing too.
A decode is the difference of two calls, for 1 + K tokens and for one, that are alike up to the first token."""
import http.client
import json
import re
import subprocess
import time

from protocol import fresh_prompt, prompts, serve

START_SECONDS = 120


class Masu:
    def __init__(self, options):
        self.options = options
        fixed = ["--kv-cache-dtype", options.kv, "--kv-cache-dtype-choices", "none", "--threads", str(options.threads),
                 "--swap-space", "0", "--kv-guard", "off"]
        sizes = ["--kv-cache-memory-bytes", str(options.cache_bytes), "--max-num-seqs", str(options.sequences), "--max-model-len",
                 str(options.context)]
        self.flags = " ".join(fixed)
        self.log = open(options.log, "w+b")
        self.server = subprocess.Popen([options.binary, "serve", options.model, "--port", "0", *fixed, *sizes], stdout=self.log,
                                       stderr=subprocess.STDOUT)
        self.version = subprocess.run([options.binary, "version"], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()[0]
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


serve(Masu)
