#!/usr/bin/env python3
"""Does the time to the first token tell one API key what another key has asked?

Starts `masu serve` with two keys and sends it random prompts, each three times: cold with key A, then with key B and
again with key A, in random order and among other prompts. Key B must read nothing from the cache, and a two-sample
Kolmogorov-Smirnov test must not tell its times from cold ones (p > 0.01: by chance one run in a hundred fails); the
same key must read the prompt from the cache and be told apart (p < 0.001), or the test could see nothing.
Exits with 1 if any of that fails.
"""
import argparse
import http.client
import json
import math
import os
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from serving import REQUEST_SECONDS, Server  # noqa: E402  (it lies beside the end-to-end tests)

PAGE = 16
# Prompts that are under way together: predecessors of a request are then of all kinds, and the cache holds them all.
BLOCK = 10


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=os.environ.get("MASU_TEST_MODEL"),
                        help="a .gguf file or a directory; default: MASU_TEST_MODEL")
    parser.add_argument("--pairs", type=int, default=200, help="prompts (default: 200)")
    parser.add_argument("--prompt-tokens", type=int, default=64, help="length of each (default: 64)")
    parser.add_argument("--vocab", type=int, default=10000, help="token ids are drawn below this (default: 10000)")
    parser.add_argument("--seed", type=int, default=None, help="of prompts and order; default: another one each time")
    options = parser.parse_args()
    if not options.model:
        parser.error("which model? give --model or MASU_TEST_MODEL")
    return options


def schedule(pairs, rng):
    """(pair, kind) in order: of each pair `cold` first, then `other` and `same` in random order."""
    events = []
    for start in range(0, pairs, BLOCK):
        order = [pair for pair in range(start, min(start + BLOCK, pairs)) for _ in range(3)]
        rng.shuffle(order)
        left = {pair: ["cold", *rng.sample(["other", "same"], 2)] for pair in order}
        events += [(pair, left[pair].pop(0)) for pair in order]
    return events


def ask(server, prompt, key):
    """Seconds to the first token, and how many tokens of the prompt came from the cache."""
    body = json.dumps({"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True, "stream": True,
                       "stream_options": {"include_usage": True}})
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=REQUEST_SECONDS)
    connection.connect()
    started = time.perf_counter()
    connection.request("POST", "/v1/completions", body,
                       {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    response = connection.getresponse()
    first = response.readline()
    seconds = time.perf_counter() - started
    rest = response.read().decode()
    connection.close()
    if response.status != 200 or not first.startswith(b"data: "):
        sys.exit(f"prefix_timing: status {response.status}: {first.decode()}{rest}")
    events = [json.loads(line.removeprefix("data: ")) for line in rest.splitlines() if line.startswith("data: {")]
    return seconds, events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]


def kolmogorov_smirnov(a, b):
    """The largest distance of two empirical distributions, and the chance of such a one or more if they are equal
    (asymptotic, with the correction of M. A. Stephens, 1970)."""
    a, b = sorted(a), sorted(b)
    i = j = 0
    distance = 0.0
    while i < len(a) and j < len(b):
        value = min(a[i], b[j])
        while i < len(a) and a[i] == value:
            i += 1
        while j < len(b) and b[j] == value:
            j += 1
        distance = max(distance, abs(i / len(a) - j / len(b)))
    root = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 0.2:  # the series converges slowly there, and is 1 to twelve digits
        return distance, 1.0
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return distance, min(1.0, max(0.0, sum(terms)))


def measure(options, rng):
    """Seconds by kind. Ends the program if the cache gave what it must not, or kept back what it should give."""
    seconds = {"cold": [], "other": [], "same": []}
    prompts = [[rng.randrange(300, options.vocab) for _ in range(options.prompt_tokens)] for _ in range(options.pairs)]
    whole_pages = (options.prompt_tokens - 1) // PAGE * PAGE
    with tempfile.TemporaryDirectory() as logs, \
            Server(options.model, "--kv-cache-memory-bytes", "512MiB", "--max-model-len", options.prompt_tokens + 16,
                   "--api-key", "A", "--api-key", "B", logs=logs) as server:
        for _ in range(5):  # the first ones touch memory for the first time
            ask(server, [rng.randrange(300, options.vocab) for _ in range(options.prompt_tokens)], "A")
        for pair, kind in schedule(options.pairs, rng):
            taken, cached = ask(server, prompts[pair], "B" if kind == "other" else "A")
            expected = whole_pages if kind == "same" else 0
            if cached != expected:
                sys.exit(f"prefix_timing: FAILED: {cached} cached tokens, not {expected}, in request '{kind}' of prompt {pair}")
            seconds[kind].append(taken)
    return seconds


def main():
    options = arguments()
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    print(f"prefix_timing: {options.pairs} prompts of {options.prompt_tokens} tokens, seed {seed}, {options.model}")
    seconds = measure(options, random.Random(seed))
    print(f"{'time to first token, ms':<26}{'10 %':>9}{'median':>9}{'90 %':>9}")
    for kind, name in (("cold", "cold"), ("other", "another key, same prompt"), ("same", "same key, same prompt")):
        times = sorted(seconds[kind])
        print(f"{name:<26}" + "".join(f"{1e3 * times[int(share * len(times))]:9.2f}" for share in (0.1, 0.5, 0.9)))
    other = kolmogorov_smirnov(seconds["other"], seconds["cold"])
    same = kolmogorov_smirnov(seconds["same"], seconds["cold"])
    print(f"another key against cold: D = {other[0]:.3f}, p = {other[1]:.3g}, which must be above 0.01")
    print(f"same key against cold:    D = {same[0]:.3f}, p = {same[1]:.3g}, which must be below 0.001")
    if other[1] <= 0.01 or same[1] >= 0.001:
        sys.exit("prefix_timing: FAILED")
    print("prefix_timing: passed")


if __name__ == "__main__":
    main()
