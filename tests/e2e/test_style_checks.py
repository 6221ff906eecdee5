"""The checks of style that ./test.sh runs are switched on: each fails on the fault it is there for."""
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOOD = "namespace masu {\nint Twice(int value) { return 2 * value; }\n}  // namespace masu\n"
USE_AFTER_MOVE = """#include <string>
#include <utility>
namespace masu {
size_t Count(std::string text) {
  const std::string other = std::move(text);
  return text.size() + other.size();
}
}  // namespace masu
"""


def needs(tool):
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def tidy(path, text):
    path.write_text(text)
    command = ["clang-tidy", "--quiet", f"--config-file={ROOT / '.clang-tidy'}", str(path), "--", "-std=c++20"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs("clang-tidy")
def test_clang_tidy_accepts_good_code(tmp_path):
    result = tidy(tmp_path / "a.cc", GOOD)
    assert result.returncode == 0, result.stdout


@needs("clang-tidy")
@pytest.mark.parametrize("text, check", [
    (GOOD.replace("Twice", "doTwice"), "readability-identifier-naming"),
    (GOOD.replace("int Twice", "struct bad_name {};\nint Twice"), "readability-identifier-naming"),
    (USE_AFTER_MOVE, "bugprone-use-after-move"),
])
def test_clang_tidy_refuses(tmp_path, text, check):
    result = tidy(tmp_path / "a.cc", text)
    assert result.returncode != 0
    assert check in result.stdout


@needs("clang-format")
def test_clang_format(tmp_path):
    def run(text):
        (tmp_path / "a.cc").write_text(text)
        command = ["clang-format", "--dry-run", "-Werror", f"--style=file:{ROOT / '.clang-format'}", "a.cc"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode
    assert run(GOOD) == 0
    assert run(GOOD.replace("2 * value", "2*value")) != 0
