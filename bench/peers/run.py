#!/usr/bin/env python3
"""Speed of masu beside llama.cpp, vLLM and OpenVINO GenAI: the same weights, token ids, lengths and concurrency, two threads each.

For each peer, masu and the peer are loaded side by side and measured in turn (masu, peer, peer, masu, ...); the other one is
stopped meanwhile. The ratio of a cell is the median over these pairs. Every cell is written to the results as soon as it is
measured, and is not measured again by the next run unless the binary of masu, or the run's settings, are other ones. Missing
models are made first.

Exits with 3 if --seconds ended the run before all cells were measured: run it again. See bench/peers/README.md.
"""
import argparse
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import report  # noqa: E402
from arms import MASU, MASU_SERVER, PEERS, Failed, Process, python_of  # noqa: E402
from report import Cell  # noqa: E402

CELLS = [Cell("prefill", n) for n in (512, 2048)] + [Cell("decode", n, c) for n in (512, 2048) for c in (1, 8, 32, 64)]
MODELS = ("smollm2", "1b")
FORMATS = "bf16,f16,q8_0,q4_0,hf,hf-int8,hf-int4"
CELLS_LEFT = 3
WARM_UP_TOKENS = 512
# A request makes at least LEAST_TOKENS in a cell; a sample has at most MOST_STEPS of them, and lasts about SAMPLE_SECONDS.
LEAST_TOKENS, MOST_STEPS, SAMPLE_SECONDS = 32, 64, 1.5
LEAST_PAIRS, MOST_PAIRS = 3, 7
# Prompts are computed for sequences of their own if the slower of two engines that must do so needs at most this.
FILL_SECONDS = 30
# A sample that takes longer than this ends its cell.
PATIENCE = 150
# What an engine takes beside weights and cache; vLLM takes most.
RUNTIME_BYTES = 3 << 29
# How long the machine is looked at before each pair: some ticks of the kernel's clock of 10 ms.
PROBE_SECONDS = 0.3
# CPUs that others may keep busy on a machine that is called quiet.
QUIET = 0.2


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help=f"of {', '.join(MODELS)} (default: both)")

    def listed(name, values, text):
        parser.add_argument(name, default=",".join(map(str, values)), help=f"{text} (default: %(default)s)")
    listed("--peers", PEERS, "peers to compare with")
    listed("--weights", (16, 8, 4), "bits of the weights: 16, 8, 4")
    listed("--kv", (16, 8), "bits of K and V: 16, 8")
    parser.add_argument("--cells", metavar="TEXT", default="", help="only cells whose name has one of these parts, such as prefill or x1-,x8-")
    parser.add_argument("--fill", choices=("auto", "own", "shared"), default="auto",
                        help="K and V of the sequences of a decode: each its own, or all on one prompt's; auto: own if the prompts are "
                             f"computed within {FILL_SECONDS} s or need not be")
    parser.add_argument("--activations", choices=("auto", "int8"), default="auto",
                        help="what masu's products take with 8-bit and 4-bit weights (--activation-dtype); int8 has results of its own")
    parser.add_argument("--threads", type=int, default=2, help="of each engine (default: 2)")
    parser.add_argument("--cell-seconds", type=float, default=45, help="no pair is begun that would end after this (default: 45)")
    parser.add_argument("--wait-quiet", type=float, default=10, metavar="SECONDS",
                        help="wait before each pair while other programs are busy, at most so long (default: 10)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no cell and no engine is begun after this")
    parser.add_argument("--again", action="store_true", help="measure all selected cells again, also skipped ones")
    parser.add_argument("--report", action="store_true", help="measure nothing, print the tables")
    parser.add_argument("--binary", type=pathlib.Path, default=os.environ.get("MASU_BINARY", ROOT / "build/release/masu"),
                        help="masu (default: MASU_BINARY, or build/release/masu)")
    parser.add_argument("--serve", action="store_true",
                        help="measure `masu serve` over loopback also where bench/masu_engine_worker lies beside the binary")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/peers",
                        help="where install.sh put the peers; models and results go there too (default: build/peers)")
    options = parser.parse_args()
    options.peers = options.peers.split(",")
    options.weights, options.kv = ([int(bits) for bits in text.split(",")] for text in (options.weights, options.kv))
    for given, known in ((options.models, MODELS), (options.peers, PEERS), (options.weights, MASU.models), (options.kv, MASU.caches)):
        for one in given:
            if one not in known:
                parser.error(f"'{one}' is not one of {', '.join(map(str, known))}")
    parts = options.cells.split(",")
    options.cells = [cell for cell in CELLS if any(part in f"{cell.name}-" for part in parts)]
    if not options.report and not options.binary.is_file():
        parser.error(f"{options.binary} is not there: build masu first, or give --binary")
    engine = options.binary.parent / "bench/masu_engine_worker"
    options.engine = engine if engine.is_file() and not options.serve else None
    return options


def make_model(folder, name):
    """The model in all formats; a file says that they are complete."""
    out, complete = folder / "models" / name, folder / "models" / name / "complete"
    if complete.is_file() and complete.read_text() == FORMATS:
        return out
    python = python_of(folder, "models")
    if not python.is_file():
        sys.exit(f"run.py: {python.parent.parent} is not there: bench/peers/install.sh models")
    smollm2 = subprocess.run([ROOT / "tools/fetch_model.sh"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    extra = ["--weights-of", smollm2] if name == "smollm2" else []
    subprocess.run([python, ROOT / "tools/make_random_model.py", out, "--tokenizer", smollm2, "--formats", FORMATS, *extra], check=True)
    complete.write_text(FORMATS)
    return out


class Results:
    """A JSON file that is whole after every cell."""

    def __init__(self, path, settings):
        self.path, self.settings = path, settings
        self.records = json.loads(path.read_text())["cells"] if path.is_file() else {}

    @staticmethod
    def key(weights, kv, peer, cell):
        return f"{peer.name}/w{weights}/kv{kv}/{cell.name}"

    def has(self, key):
        return self.records.get(key, {}).get("settings") == self.settings

    def add(self, key, record):
        self.records.pop(key, None)  # the newest is last
        self.records[key] = record | {"settings": self.settings}
        whole = self.path.with_suffix(".new")
        whole.write_text(json.dumps({"cells": self.records}, indent=1) + "\n")
        whole.replace(self.path)

    def prefill_rate(self, weights, kv, arm, context):
        """Tokens/s of an arm, if prefill was measured at this context."""
        rates = [min(record["masu_rates" if arm.name == MASU.name else "peer_rates"]) for record in self.records.values()
                 if (record["weights"], record["kv"], record["cell"]) == (weights, kv, f"prefill-{context}")
                 and (arm.name == MASU.name or record["peer"] == arm.name) and "skip" not in record]
        return min(rates, default=None)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def fill_of(options, results, weights, kv, masu, peer, cell):
    """Whether K and V of the sequences of a cell are each its own or one prompt's, in both engines alike."""
    if options.fill != "auto":
        return options.fill
    if cell.kind == "prefill":
        return "shared"  # as servers run: with a prefix cache, which new prompts do not hit
    if cell.concurrency == 1:
        return "own"
    for arm in (masu, peer):
        rate = results.prefill_rate(weights, kv, arm, cell.context) or 1
        if not arm.fills_quickly and cell.concurrency * cell.context > FILL_SECONDS * rate:
            return "shared"
    return "own"


def worker_options(options, model, config, arm, weights, kv, fill, cells):
    """See workers/protocol.py."""
    growth = 2 * MOST_STEPS
    sequences, context = max(cell.concurrency for cell in cells), max(cell.context for cell in cells) + growth
    held = max(cell.concurrency * (cell.context + growth) for cell in cells) if fill == "own" else context + sequences * growth
    return {"model": str(model / arm.models[weights]), "kv": arm.caches[kv], "threads": options.threads,
            "vocabulary": config["vocab_size"],
            "bytes_per_token": config["num_hidden_layers"] * 2 * config["num_key_value_heads"] * config["head_dim"] * 2,
            "sequences": sequences, "context": context, "tokens": held + 2 * context,  # room for prompts that nothing waits for
            "activations": options.activations if weights < 16 else "auto", "fill": fill, "binary": str(options.binary.resolve()),
            "engine": str(options.engine.resolve()) if options.engine else "", "log": str(options.folder / "logs/masu-serve.log")}


def check_memory(arms, arguments):
    """Fails for the second engine if both do not fit into what is free; being out of memory would end anything."""
    free = int(re.search(r"MemAvailable: *(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1]) << 10
    needed = 0
    for one in arguments:
        model = pathlib.Path(one["model"])
        weights = sum(path.stat().st_size for path in (model.glob("*.safetensors") if model.is_dir() else [model]))
        needed += weights + one["tokens"] * one["bytes_per_token"] + RUNTIME_BYTES
    if needed > free:
        raise Failed(arms[1], f"and masu need {needed / 2**30:.1f} GiB, {free / 2**30:.1f} are free; then --again")


def busy_elsewhere():
    """CPUs that other programs keep busy, looked at while no engine runs."""
    def busy_ticks():
        numbers = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        return sum(numbers[:3]) + sum(numbers[5:8])  # all but idle and waiting for disks, guests counted once
    before, start = busy_ticks(), time.monotonic()
    time.sleep(PROBE_SECONDS)
    return (busy_ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - start)


def wait_until_quiet(seconds):
    """Waits while other programs are busy, at most so long; returns how many CPUs they keep busy in the end."""
    deadline = time.monotonic() + seconds
    while (busy := busy_elsewhere()) > QUIET and time.monotonic() < deadline:
        time.sleep(1)
    return busy


def sample(arm, cell, steps, number):
    """Tokens per second."""
    if cell.kind == "prefill":
        return cell.context / arm.ask(PATIENCE, do="prefill", context=cell.context, sample=number)
    return steps * cell.concurrency / arm.ask(PATIENCE, do="decode", concurrency=cell.concurrency, context=cell.context, steps=steps)


def warm_up(arms, cell):
    """Fills caches, makes engines compile what they compile late; returns how many tokens a sample of a decode shall have."""
    if cell.kind == "prefill":
        for arm in arms:
            sample(arm, Cell("prefill", WARM_UP_TOKENS), 0, "warm-up")
        return 0
    for arm in arms:
        arm.ask(PATIENCE, do="fill", concurrency=cell.concurrency, context=cell.context)
    slowest = min(sample(arm, cell, 4, 0) for arm in arms) / cell.concurrency
    return min(MOST_STEPS, max(math.ceil(LEAST_TOKENS / LEAST_PAIRS), math.ceil(SAMPLE_SECONDS * slowest)))


def measure(options, cell, masu, peer):
    """Tokens per second of both, in pairs."""
    rates, busy, longest, spent = {masu: [], peer: []}, [], 0.0, 0.0
    steps = warm_up(rates, cell)
    # A long prompt can take so long that two pairs must do.
    least = LEAST_PAIRS if cell.kind == "decode" else LEAST_PAIRS - 1
    for pair in range(MOST_PAIRS):
        if pair >= least and spent + longest > options.cell_seconds:
            break
        busy.append(wait_until_quiet(options.wait_quiet))
        began = time.monotonic()
        for arm in (masu, peer) if pair % 2 == 0 else (peer, masu):
            rates[arm].append(sample(arm, cell, steps, pair))
        longest = max(longest, time.monotonic() - began)
        spent += time.monotonic() - began
    return {"masu_rates": rates[masu], "peer_rates": rates[peer], "steps": steps, "busy": max(busy),
            "versions": [masu.version, peer.version], "flags": [masu.flags, peer.flags]}


class Run:
    """What is measured in one call of this program."""

    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + options.seconds
        self.complete = True
        self.masu = MASU if options.engine else MASU_SERVER
        self.logs = options.folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)

    def is_late(self):
        self.complete = self.complete and time.monotonic() < self.deadline
        return not self.complete

    def model(self, name):
        model = make_model(self.options.folder, name)
        results = Results(results_path(self.options, name), settings_of(self.options))
        config = json.loads((model / "hf/config.json").read_text())
        for weights in self.options.weights:
            for kv in self.options.kv:
                for peer in (PEERS[name] for name in self.options.peers):
                    self.group(results, model, config, peer, weights, kv)

    def group(self, results, model, config, peer, weights, kv):
        """All cells of one peer with one kind of weights and cache; prefill comes first, because it tells how to fill."""
        for kind in ("prefill", "decode"):
            todo = {}
            for cell in self.options.cells:
                done = results.has(results.key(weights, kv, peer, cell)) and not self.options.again
                if cell.kind == kind and not done:
                    todo.setdefault(fill_of(self.options, results, weights, kv, self.masu, peer, cell), []).append(cell)
            for fill, cells in todo.items():
                if not self.is_late():
                    self.cells(results, model, config, peer, weights, kv, fill, cells)

    def cells(self, results, model, config, peer, weights, kv, fill, cells):
        """Those that one pair of processes measures."""
        def record(cell, **what):
            key = results.key(weights, kv, peer, cell)
            results.add(key, {"peer": peer.name, "weights": weights, "kv": kv, "cell": cell.name, "order": CELLS.index(cell)} | what)
            found = f"not run: {what['skip']}" if "skip" in what else f"masu / peer {report.ratio_of(results.records[key])}"
            print(f"{model.name} {key}: {found}", flush=True)

        processes, left, arms = [], list(cells), (self.masu, peer)
        arguments = [worker_options(self.options, model, config, arm, weights, kv, fill, cells) for arm in arms]
        try:
            check_memory(arms, arguments)
            for arm, one in zip(arms, arguments):
                print(f"{model.name}: {arm.name} loads {arm.models[weights]}, cache {arm.caches[kv]}", flush=True)
                processes.append(Process(arm, one, self.options.folder, self.logs))
            while left and not self.is_late():
                cell = left.pop(0)
                try:
                    record(cell, **measure(self.options, cell, *processes), **({"fill": fill} if cell.kind == "decode" else {}))
                except Failed as error:
                    record(cell, skip=str(error))
                    if any(process.is_lost for process in processes):
                        raise
        except Failed as error:
            if error.arm is self.masu:
                sys.exit(f"run.py: {error}")  # nothing can be compared without it
            for cell in left:
                record(cell, skip=str(error))
        finally:
            for process in processes:
                process.close()


def settings_of(options):
    """What a result must have been measured with in order to stand."""
    program = options.engine or options.binary
    return {"masu": hashlib.sha256(program.read_bytes()).hexdigest()[:12], "by": "its engine" if options.engine else "masu serve",
            "processor": processor(), "threads": options.threads, "activations": options.activations}


def results_path(options, name):
    suffix = "" if options.activations == "auto" else f"-{options.activations}"
    return options.folder / "results" / f"{name}{suffix}.json"


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("run.py: ended by SIGTERM"))  # so that no engine is left behind
    (options.folder / "results").mkdir(parents=True, exist_ok=True)
    run = Run(options)
    for name in options.models:
        if not options.report:
            run.model(name)
        path = results_path(options, name)
        if path.is_file():
            text = report.page(name, json.loads(path.read_text())["cells"].values())
            path.with_suffix(".md").write_text(text)
            print(text)
    if not run.complete:
        print("run.py: the time of --seconds is over and cells are left; run it again", file=sys.stderr)
        sys.exit(CELLS_LEFT)


if __name__ == "__main__":
    main()
