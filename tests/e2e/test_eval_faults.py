"""Each check of `masu eval` with data of our own catches its planted fault, on a real model where it takes one."""
import json
import os
import subprocess

import pytest

BINARY = os.environ["MASU_BINARY"]


def evaluate(checks, model, *flags, timeout=900):
    """Runs `masu eval` on one encoding; returns its JSON."""
    result = subprocess.run([BINARY, "eval", checks, model, "--kv-cache-dtype", "bfloat16", "--json", *flags],
                            capture_output=True, text=True, timeout=timeout, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def scores(report):
    return {task["name"]: task["runs"][0]["score"] for task in report["tasks"]}


def test_a_zeroed_span_of_the_cache_is_caught(smollm2_path):
    lengths = ("--lengths", "512")
    sound = scores(evaluate("needle,copy", smollm2_path, *lengths))
    damaged = scores(evaluate("needle,copy", smollm2_path, *lengths, "--fault-injection", "zero-span=1",
                              "--kv-integrity", "off"))
    # 11 questions, seen: all right without the fault; with it one of 5 and none of 6.
    assert sound["needle"] >= 0.8 and sound["copy"] >= 0.8, sound
    assert damaged["needle"] <= sound["needle"] - 0.4, damaged
    assert damaged["copy"] <= sound["copy"] - 0.4, damaged


def test_a_looping_model_is_caught(tiny):
    report = evaluate("repetition", tiny.chain("round", ["over", " and", " round", " it"], loop_to=0), "--limit", "2")
    assert scores(report) == {"repetition": 0}


def test_own_prompts(tiny, tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text('{"prompt": "Which?", "answer": "the houses"}\n{"prompt": "What?", "answer": "a boat"}\n')
    model = tiny.chain("houses", ["over", " the", " houses"])
    assert scores(evaluate("custom", model, "--file", str(file))) == {"custom": 0.5}


@pytest.mark.parametrize("text, names", [
    ('{"prompt": "a"}\n{"prompt": 1}\n', "own.jsonl line 2"),
    ('{"prompt": "a", "answer": "(", "match": "regex"}\n', "own.jsonl line 1"),
    ("", "no questions"),
], ids=str)
def test_own_prompts_that_are_malformed(tiny, tmp_path, text, names):
    file = tmp_path / "own.jsonl"
    file.write_text(text)
    result = subprocess.run([BINARY, "eval", "custom", tiny.chain("houses", ["over", " the", " houses"]), "--file", file], capture_output=True,
                            text=True, timeout=60, check=False)
    assert result.returncode == 1, result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and names in lines[0], lines


def test_zero_span_needs_unchecked_pages(tiny):
    result = subprocess.run([BINARY, "eval", "needle", tiny.rand(), "--fault-injection", "zero-span=1"],
                            capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "--kv-integrity off" in result.stderr.strip().splitlines()[-1], result.stderr
