#!/usr/bin/env python3
"""Checks the rules of the source tree that no compiler checks.

  - a folder of src/ includes only itself and the layers above it in docs/layers.txt, and no outside
    header that docs/layers.txt bars for it; nothing in src/ but a test includes tests/, bench/ or fuzz/
  - every #include "..." names a file, from src/ or from the root of the checkout
  - the environment is read in src/base/environment.cc only
  - headers with intrinsics are included in src/backend/cpu only
  - no source file is longer than 700 lines

Prints one line per fault, as file:line: cause; remedy. Exits with 1 if there is any.
"""
import argparse
import pathlib
import re
import sys

MAX_LINES = 700
SOURCE_FOLDERS = ("src", "tests", "fuzz", "bench", "tools", "python")
CXX_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
READS_ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b")
INTRINSICS = re.compile(r"^\w*intrin\.h$")
LINE_COMMENT = re.compile(r"//.*")


def read_layers(path):
    """Returns {layer: (position, barred prefixes)} from a file with one layer a line."""
    layers = {}
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            barred = tuple(word.removeprefix("!") for word in words[1:])
            layers[words[0]] = (len(layers), barred)
    return layers


def source_files(root):
    skipped = {"build", ".venv", ".git", "__pycache__"}
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in CXX_SUFFIXES | {".py", ".sh"} and not skipped & set(path.parts):
                yield path


def resolve(root, name):
    """Where #include "name" is found: what stands in -I, src/ and the root."""
    for base in (root / "src", root):
        if (base / name).is_file():
            return (base / name).resolve().relative_to(root.resolve())
    return None


def layer_of(relative):
    parts = relative.parts
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def is_test(relative):
    return relative.stem.endswith(("_test", "_bench"))


def check_quoted(root, layers, relative, name):
    target = resolve(root, name)
    if target is None:
        return f'"{name}" does not exist in src/ or the root; write the path from there'
    layer, target_layer = layer_of(relative), layer_of(target)
    if layer is None:
        return None
    if target_layer is None:
        return None if is_test(relative) else f'"{name}" is outside src/, which only tests may include'
    if target_layer in layers and layers[target_layer][0] > layers[layer][0]:
        return (f'layer {layer} must not know {target_layer}, which stands below it in docs/layers.txt; '
                "move the code or turn the dependency round with an interface")
    return None


def check_angled(layers, relative, name):
    layer = layer_of(relative)
    if INTRINSICS.match(name) and relative.parts[:3] != ("src", "backend", "cpu"):
        return f"<{name}> belongs in src/backend/cpu only; put the kernel there behind an op"
    if layer is not None and not is_test(relative):
        for prefix in layers[layer][1]:
            if name.startswith(prefix):
                return f"layer {layer} must not include <{name}> (docs/layers.txt)"
    return None


def check_file(root, layers, relative):
    """Yields (line, fault) of one source file."""
    lines = (root / relative).read_text(errors="replace").splitlines()
    if len(lines) > MAX_LINES:
        yield len(lines), f"{len(lines)} lines, the limit is {MAX_LINES}; split it"
    if relative.suffix not in CXX_SUFFIXES:
        return
    layer = layer_of(relative)
    if layer is not None and layer not in layers:
        yield 1, f"src/{layer} is no layer of docs/layers.txt; add it there at its place"
        return
    for number, line in enumerate(lines, 1):
        include = INCLUDE.match(line)
        fault = None
        if include and include[1]:
            fault = check_quoted(root, layers, relative, include[1])
        elif include:
            fault = check_angled(layers, relative, include[2])
        elif relative.parts[0] == "src" and relative.as_posix() != "src/base/environment.cc":
            if READS_ENVIRONMENT.search(LINE_COMMENT.sub("", line)):
                fault = "the environment is read in src/base/environment.cc only; pass the value in"
        if fault:
            yield number, fault


def check_tree(root):
    layers = read_layers(root / "docs" / "layers.txt")
    return [f"{path.relative_to(root)}:{line}: {fault}" for path in source_files(root)
            for line, fault in check_file(root, layers, path.relative_to(root))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root.resolve()
    faults = check_tree(root)
    for fault in faults:
        print(fault)
    count = sum(1 for _ in source_files(root))
    print(f"check_layers: {count} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
