"""What all workers share. A worker is a process that holds one engine with one model, and measures on request.

run.py starts it with a JSON object as its only argument (see `Options`) and then writes one JSON object a line to its input:

  {"do": "fill", "concurrency": C, "context": N}               makes C sequences of N tokens cheap to come back to
  {"do": "decode", "concurrency": C, "context": N, "steps": K} seconds in which each of them gets K tokens, after its first
  {"do": "prefill", "context": N, "sample": I}                 seconds from a new prompt of N tokens to its first token

Each is answered with one line: {"seconds": S}, or {"error": TEXT}. The first line, once the model is loaded, is
{"version": TEXT, "flags": TEXT}. Standard library only: it runs in the environment of every peer.
"""
import dataclasses
import functools
import json
import os
import random
import sys
import traceback

# Below it there are a vocabulary's special tokens.
FIRST_TOKEN = 256


@dataclasses.dataclass
class Options:
    model: str            # file or directory
    kv: str               # the peer's own name of the cache's encoding
    threads: int
    vocabulary: int
    bytes_per_token: int  # of K and V at 16 bits
    sequences: int        # most that run at once
    context: int          # longest prompt and answer
    tokens: int           # what the cache must hold in all
    fill: str             # "own": each sequence has K and V of its own; "shared": all go on from one prompt's
    activations: str = "auto"  # masu's --activation-dtype
    binary: str = ""      # of masu
    engine: str = ""      # masu's engine as a worker; empty: not built, a server is asked
    log: str = ""         # for what a server writes

    @property
    def cache_bytes(self):
        return self.tokens * self.bytes_per_token


@functools.cache
def token_ids(name, count, vocabulary):
    """`count` random ids. A longer list of the same name begins with the shorter one."""
    generator = random.Random(name)
    return [generator.randrange(FIRST_TOKEN, vocabulary) for _ in range(count)]


def prompts(options, concurrency, context):
    """One token more than the context: pages that were filled end before it, and it is computed with the others' in one step."""
    names = ["request 0"] * concurrency if options.fill == "shared" else [f"request {i}" for i in range(concurrency)]
    return [token_ids(name, context + 1, options.vocabulary) for name in names]


def fresh_prompt(options, context, sample):
    """One that no cache has seen."""
    return token_ids(f"prompt {context} {sample}", context, options.vocabulary)


def answer(worker, request):
    kind = request.pop("do")
    return {"seconds": getattr(worker, kind)(**request)}


def serve(worker_class):
    """Loads and answers until the input ends. What the engine prints goes to the error stream, not among the answers."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = worker_class(Options(**json.loads(sys.argv[1])))
    print(json.dumps({"version": worker.version, "flags": worker.flags}), file=answers)
    for line in sys.stdin:
        try:
            reply = answer(worker, json.loads(line))
        except Exception as error:  # whatever a peer raises is a cell that it cannot run
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(reply), file=answers)
