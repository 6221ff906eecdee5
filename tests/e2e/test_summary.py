"""tools/summarize_tests.py counts cases, names failures and what was not run, and its status follows."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = """<testsuites><testsuite name="Pages">
<testcase name="Good" status="run" classname="Pages"/>
<testcase name="Bad" status="run" classname="Pages"><failure message="kv/x_test.cc:7&#x0A;Expected 1"/></testcase>
<testcase name="Golden" status="run" classname="Pages"><skipped message="kv/x_test.cc:9&#x0A;golden/a.bin is missing"/></testcase>
<testcase name="Off" status="notrun" classname="Pages"/>
</testsuite></testsuites>"""


def summarize(tmp_path, steps, files=None):
    (tmp_path / "steps.tsv").write_text(steps)
    for name, text in (files or {}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, str(ROOT / "tools/summarize_tests.py"), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout.splitlines()


def test_counts_and_names(tmp_path):
    status, lines = summarize(tmp_path, "format\tpassed\t1\t\nunit\tfailed\t2\tstatus 8\ntsan\tskipped\t0\tno tests\n",
                              {"unit/kv_test.xml": CASES})
    assert status == 1
    assert lines == ["not run:", "  unit: kv_test: Pages.Golden (golden/a.bin is missing)",
                     "  unit: kv_test: Pages.Off (disabled)", "  tsan (no tests)",
                     "failed:", "  unit: kv_test: Pages.Bad (Expected 1)", "masu: 2 passed, 1 failed, 3 skipped"]


def test_a_crash_is_a_failure(tmp_path):
    programs = '<testsuite><testcase name="kv" status="fail"/><testcase name="base" status="run"/></testsuite>'
    status, lines = summarize(tmp_path, "asan\tfailed\t2\tstatus 8\n",
                              {"asan/base_test.xml": CASES.replace("failure", "properties"), "asan/ctest.junit": programs})
    assert status == 1
    assert lines[-2:] == ["  asan: kv_test (crashed or timed out; its output is above)", "masu: 2 passed, 1 failed, 2 skipped"]


def test_all_passed(tmp_path):
    assert summarize(tmp_path, "format\tpassed\t1\t\n") == (0, ["masu: 1 passed, 0 failed, 0 skipped"])


def test_nothing_run_is_no_success(tmp_path):
    assert summarize(tmp_path, "tsan\tskipped\t0\tno tests\n")[0] == 1
