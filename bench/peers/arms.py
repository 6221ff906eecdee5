"""The engines that are compared, and the processes that run them (workers/protocol.py says what passes between)."""
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
START_SECONDS = 180
# vLLM's worker is among its children, and an interrupted run must not leave one behind.
STOP_SECONDS = 10


class Failed(Exception):
    """A worker could not do what it was asked; the text says why, in one line."""

    def __init__(self, arm, why):
        super().__init__(f"{arm.name} {why}"[:240])
        self.arm = arm


@dataclasses.dataclass(frozen=True)
class Arm:
    name: str
    worker: str
    models: dict         # weight bits -> name of a format of tools/make_random_model.py
    caches: dict         # KV bits -> the engine's name of the encoding
    fills_quickly: bool  # sequences with K and V of their own need not be prefilled one by one


MASU = Arm("masu", "masu_worker.py", {16: "bf16.gguf", 8: "q8_0.gguf", 4: "q4_0.gguf"}, {16: "bfloat16", 8: "int8"}, True)
# masu by `masu serve`, where its engine was not built as a worker (workers/masu_worker.py).
MASU_SERVER = dataclasses.replace(MASU, fills_quickly=False)
PEERS = {arm.name: arm for arm in (
    Arm("llama.cpp", "llama_cpp_worker.py", {16: "bf16.gguf", 8: "q8_0.gguf", 4: "q4_0.gguf"}, {16: "f16", 8: "q8_0"}, True),
    Arm("vllm", "vllm_worker.py", {16: "hf", 8: "hf-int8", 4: "hf-int4"}, {16: "auto", 8: "fp8"}, True),
    Arm("openvino", "openvino_worker.py", {16: "f16.gguf", 8: "q8_0.gguf", 4: "q4_0.gguf"}, {16: "bf16", 8: "u8"}, False),
)}


def python_of(environments, name):
    return environments / name / "venv/bin/python"


def environment():
    """Without what a shell may have set for other programs: threads, kernels and places of other libraries."""
    other = ("OMP_", "KMP_", "MKL_", "OPENBLAS_", "GOMP_", "LD_PRELOAD", "PYTHONPATH", "VLLM_", "MASU_LOG_LEVEL", "MASU_ISA")
    return {name: value for name, value in os.environ.items() if not name.startswith(other)}


class Process:
    """A worker with its model loaded. It is stopped, with all its threads, while it is not asked."""

    def __init__(self, arm, options, environments, logs):
        self.arm = arm
        self.is_lost = False
        self.log_path = logs / f"{arm.name}.log"
        python = sys.executable if arm.name == MASU.name else python_of(environments, arm.name)
        if not pathlib.Path(python).is_file():
            raise Failed(arm, f"is not installed: bench/peers/install.sh {arm.name}")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([python, HERE / "workers" / arm.worker, json.dumps(options)], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, env=environment(), start_new_session=True)
        try:
            hello = self.reply(START_SECONDS)
        except BaseException:
            self.close()
            raise
        self.version, self.flags = hello["version"], hello["flags"]
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def reply(self, seconds):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            self.is_lost = True
            raise Failed(self.arm, f"did not answer within {seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            self.is_lost = True
            raise Failed(self.arm, f"ended: {self.last_words()}")
        return json.loads(line)

    def last_words(self):
        """The last line of the log that names an error, or the last of all."""
        lines = [line.strip() for line in self.log_path.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if "rror" in line and "WARN" not in line]
        return (errors or lines or ["without a word"])[-1][:200]

    def ask(self, seconds, **request):
        """Seconds that the worker measured; it has `seconds` to answer."""
        self.signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        reply = self.reply(seconds)
        self.signal(signal.SIGSTOP)
        if "error" in reply:
            raise Failed(self.arm, f"said: {reply['error']}")
        return reply["seconds"]

    def close(self):
        """Ends the whole group: a server or a worker of the engine's own is in it."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
