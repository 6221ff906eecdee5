#!/usr/bin/env python3
"""Adds up what ./test.sh ran: its steps and the test cases that GTest and pytest wrote as JUnit XML.

  tools/summarize_tests.py FOLDER

FOLDER/steps.tsv has a line per step: name, passed|failed|skipped, seconds, reason. FOLDER/NAME/*.xml are the
cases of the step NAME, and FOLDER/NAME/ctest.junit the programs that held them, for those that crashed; a
step without any counts as one. Names every failure and everything that was not run, then closes with
"masu: N passed, M failed, K skipped". Exits with 1 if something failed or nothing passed.
"""
import collections
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def cases_of(path):
    """Yields (name, state, reason) of each case in a JUnit XML file of GTest or pytest."""
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        yield path.stem, "failed", f"wrote no readable results: {error}"
        return
    for case in root.iter("testcase"):
        suite = case.get("classname", "").split(".")[-1] or path.stem
        name = f"{path.stem}: {suite}.{case.get('name')}"
        fault = next((child for child in case if child.tag in ("failure", "error")), None)
        skip = case.find("skipped")
        if fault is not None:
            yield name, "failed", fault.get("message", "")
        elif skip is not None or case.get("status") == "notrun":
            yield name, "skipped", (skip.get("message", "") if skip is not None else "disabled")
        else:
            yield name, "passed", ""


def crashes_of(folder, cases):
    """Yields the test programs that failed without a case of theirs that did: they crashed, hung or lost their file."""
    path = folder / "ctest.junit"
    if path.is_file():
        explained = {name.split(":")[0] for name, state, _ in cases if state == "failed"}
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            program = case.get("name") + "_test"
            if case.get("status") == "fail" and program not in explained:
                yield program, "failed", "crashed or timed out; its output is above"


def results_of(folder):
    """Yields (step, name, state, reason) of everything that ran or was to run."""
    for line in (folder / "steps.tsv").read_text().splitlines():
        step, state, _, reason = line.split("\t")
        cases = [case for path in sorted((folder / step).glob("*.xml")) for case in cases_of(path)]
        cases += list(crashes_of(folder / step, cases))
        for name, case_state, case_reason in cases:
            yield step, name, case_state, case_reason
        if not cases or (state == "failed" and all(case[1] != "failed" for case in cases)):
            yield step, step, state, reason


def first_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # GTest puts file and line first and the message after it.
    message = lines[1] if len(lines) > 1 and ".cc:" in lines[0] else (lines or [""])[0]
    return message[:160]


def print_named(title, results):
    if not results:
        return
    print(f"{title}:")
    for step, name, _, reason in results:
        label = name if name == step else f"{step}: {name}"
        print(f"  {label}" + (f" ({first_line(reason)})" if reason else ""))


def main():
    folder = pathlib.Path(sys.argv[1])
    by_state = collections.defaultdict(list)
    for result in results_of(folder):
        by_state[result[2]].append(result)
    print_named("not run", by_state["skipped"])
    print_named("failed", by_state["failed"])
    counts = [len(by_state[state]) for state in ("passed", "failed", "skipped")]
    print("masu: {} passed, {} failed, {} skipped".format(*counts), flush=True)
    return 1 if counts[1] or not counts[0] else 0


if __name__ == "__main__":
    sys.exit(main())
