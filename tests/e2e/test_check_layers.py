"""tools/check_layers.py finds what it promises to find, and nothing in the tree as it is."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = "base\ntensor\nbackend\nengine !nlohmann/ # no JSON\nserver\n"


def run(root):
    return subprocess.run([sys.executable, str(ROOT / "tools/check_layers.py"), "--root", str(root)],
                          capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path):
    """A function that writes files into a small correct tree and runs the check on it."""
    def write(files):
        base = {"docs/layers.txt": LAYERS, "src/base/check.h": "#pragma once\n",
                "src/tensor/shape.h": '#include "base/check.h"\n', "src/engine/engine.h": "#pragma once\n",
                "tests/support/tiny.h": '#include "engine/engine.h"\n'}
        for name, text in (base | files).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return run(tmp_path)
    return write


ALLOWED = {
    "own layer": {"src/tensor/view.h": '#include "tensor/shape.h"\n'},
    "a test reaches tests/": {"src/tensor/view_test.cc": '#include "tests/support/tiny.h"\n'},
    "getenv at its place": {"src/base/environment.cc": 'auto* x = std::getenv("X");\n'},
    "getenv in a comment": {"src/engine/a.cc": "// no getenv() here\n"},
    "intrinsics at their place": {"src/backend/cpu/avx2/dot.cc": "#include <immintrin.h>\n"},
    "JSON where it is allowed": {"src/server/a.cc": "#include <nlohmann/json.hpp>\n"},
    "700 lines": {"src/base/long.cc": "//\n" * 700},
}
REFUSED = {
    "upward include": ({"src/tensor/view.h": '\n#include "engine/engine.h"\n'},
                       "src/tensor/view.h:2: layer tensor must not know engine"),
    "upward include in a test": ({"src/tensor/view_test.cc": '#include "engine/engine.h"\n'},
                                 "src/tensor/view_test.cc:1: layer tensor must not know engine"),
    "missing file": ({"src/engine/a.cc": '#include "engine/b.h"\n'}, '"engine/b.h" does not exist'),
    "relative path": ({"src/engine/a.cc": '#include "engine.h"\n'}, '"engine.h" does not exist'),
    "product reaches tests/": ({"src/engine/a.cc": '#include "tests/support/tiny.h"\n'}, "is outside src/"),
    "getenv": ({"src/engine/a.cc": 'auto* x = getenv("X");\n'}, "src/engine/a.cc:1: the environment is read"),
    "intrinsics": ({"src/engine/a.cc": "#include <immintrin.h>\n"}, "belongs in src/backend/cpu only"),
    "barred library": ({"src/engine/a.cc": "#include <nlohmann/json.hpp>\n"}, "must not include <nlohmann/json.hpp>"),
    "unknown layer": ({"src/helpers/a.cc": "\n"}, "src/helpers is no layer"),
    "701 lines": ({"src/base/long.cc": "//\n" * 701}, "701 lines, the limit is 700"),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(tree, name):
    result = tree(ALLOWED[name])
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tree, name):
    files, message = REFUSED[name]
    result = tree(files)
    assert result.returncode == 1
    assert message in result.stdout
    assert result.stdout.count("\n") == 2  # the fault and the closing line


def test_this_checkout():
    result = run(ROOT)
    assert result.returncode == 0, result.stdout
