#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy) on the sources of a configured build folder.

A file that passed is not checked again until it, a file of ours that it includes, its compile command or
.clang-tidy changes: passes are kept under build/tidy. Files changed last come first. When the budget is
used up, the files that were not reached are named and the status is 77, unless a fault was found: then it is 1.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUOTED_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# The commands are g++'s: what only g++ knows is no fault, and warnings are the compiler's business.
EXTRA = ["--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-error", "--extra-arg=-w"]
# clang 14 knows _Float16 only together with this instruction set; g++ 12 knows it always.
FLOAT16 = ["--extra-arg=-mavx512fp16"]
NOT_ALL_CHECKED = 77


@functools.cache
def text_of(path):
    return path.read_text(errors="replace")


def with_includes(path):
    """The file and every file of ours that it includes, directly or not."""
    found, queue = {path}, [path]
    while queue:
        for name in QUOTED_INCLUDE.findall(text_of(queue.pop())):
            for base in (ROOT / "src", ROOT):
                target = base / name
                if target.is_file() and target not in found:
                    found.add(target)
                    queue.append(target)
    return sorted(found)


def key_of(path, command, salt):
    digest = hashlib.sha256(salt + command.encode())
    for file in with_includes(path):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + text_of(file).encode())
    return digest.hexdigest()


def read_commands(build):
    """{source of ours: its compile command without the checkout's own path}"""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"]).resolve()
        if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "build"):
            command = entry.get("command") or shlex.join(entry["arguments"])
            commands[path] = command.replace(str(ROOT), "")
    return commands


def check(path, build, deadline):
    """Returns (path, state, output); state is passed, failed or late."""
    if time.monotonic() > deadline:
        return path, "late", ""
    start = time.monotonic()
    extra = EXTRA + (FLOAT16 if any("_Float16" in text_of(file) for file in with_includes(path)) else [])
    result = subprocess.run(["clang-tidy", "--quiet", "-p", str(build), *extra, str(path)], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    state = "passed" if result.returncode == 0 else "failed"
    print(f"  {time.monotonic() - start:5.1f} s  {state}  {path.relative_to(ROOT)}", flush=True)
    return path, state, result.stdout if result.stdout.strip() else result.stderr


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="only these (default: all of the build)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "build/tidy")
    parser.add_argument("--budget", type=float, default=600, help="seconds after which no new file is begun")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if not (arguments.build / "compile_commands.json").is_file():
        print(f"run_clang_tidy: {arguments.build} is not configured; run cmake --preset release", file=sys.stderr)
        return 1
    arguments.cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    salt = version + (ROOT / ".clang-tidy").read_bytes() + " ".join(EXTRA + FLOAT16).encode()
    commands = read_commands(arguments.build)
    chosen = {path.resolve() for path in arguments.files} or commands.keys()
    keys = {path: key_of(path, commands[path], salt) for path in chosen if path in commands}
    todo = [path for path, key in keys.items() if not (arguments.cache / key).exists()]
    todo.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    print(f"clang-tidy: {len(todo)} files to check, {len(keys) - len(todo)} unchanged since they passed", flush=True)

    deadline = time.monotonic() + arguments.budget
    states = {"passed": [], "failed": [], "late": []}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for path, state, output in pool.map(lambda path: check(path, arguments.build, deadline), todo):
            states[state].append(str(path.relative_to(ROOT)))
            if state == "passed":
                (arguments.cache / keys[path]).touch()
            elif state == "failed":
                print(output, flush=True)
    if states["late"]:
        print(f"clang-tidy: not reached within {arguments.budget:.0f} s: {' '.join(states['late'])}")
    if states["failed"]:
        print(f"clang-tidy: faults in {' '.join(states['failed'])}")
        return 1
    return NOT_ALL_CHECKED if states["late"] else 0


if __name__ == "__main__":
    sys.exit(main())
