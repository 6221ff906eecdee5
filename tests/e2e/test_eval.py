"""masu eval: lists of checks over lists of encodings, and its reports. Scores are compared with the server's answers."""
import json
import shutil

import pytest
from serving import strict_json
from test_command_line import check_refusal, run

QUESTIONS = 20


@pytest.fixture(scope="module")
def arc_path(golden_path):
    folder = golden_path.parents[2] / "data/eval"
    if not (folder / "arc_easy.jsonl").is_file():
        pytest.skip("data/eval/arc_easy.jsonl is not in MASU_TEST_DATA")
    return folder


@pytest.fixture(scope="module")
def arc(smollm2_path, arc_path, tmp_path_factory):
    """One run of ARC-Easy with the reports it wrote: (text, JSON, HTML)."""
    folder = tmp_path_factory.mktemp("eval")
    result = run("eval", "arc_easy,kl", smollm2_path, "--data", arc_path, "--limit", QUESTIONS, "--kv-cache-dtype", "fp8,int8",
                 "--tokens", 128, "--window", 64, f"--json={folder / 'report.json'}", "--html", folder / "report.html", seconds=900)
    assert result.returncode == 0, result.stderr
    return result.stdout, strict_json((folder / "report.json").read_bytes()), (folder / "report.html").read_text()


def questions(arc_path):
    lines = (arc_path / "arc_easy.jsonl").read_text().splitlines()[:QUESTIONS]
    return [json.loads(line) for line in lines]


def log_likelihood(server, context, continuation):
    """What the server says of a continuation, as lm-evaluation-harness asks it through local-completions."""
    answer = server.ok("/v1/completions", {"model": server.get("/v1/models").json["data"][0]["id"], "prompt": context + continuation,
                                           "max_tokens": 0, "echo": True, "logprobs": 0, "temperature": 0})
    logprobs = answer["choices"][0]["logprobs"]
    return sum(logprob for logprob, offset in zip(logprobs["token_logprobs"], logprobs["text_offset"]) if offset >= len(context))


def test_scores_are_those_of_the_server(arc, arc_path, smollm2):
    """The server of this fixture has an FP8 cache: each question's choice, log-likelihood and acc_norm are the same."""
    _, report, _ = arc
    run_fp8 = next(one for one in report["tasks"][0]["runs"] if one["kv_cache_dtype"] == "fp8")
    for question, item in zip(questions(arc_path), run_fp8["items"]):
        values = [log_likelihood(smollm2, question["query"] + "\nAnswer:", " " + choice) for choice in question["choices"]]
        assert item["log_likelihood"] == pytest.approx(values[question["gold"]], abs=1e-3), item
        assert item["answer"] == question["choices"][values.index(max(values))]
        assert item["score"] == (values.index(max(values)) == question["gold"])
        normalized = [value / len(choice) for value, choice in zip(values, question["choices"])]
        assert item["extra"]["acc_norm"] == (normalized.index(max(normalized)) == question["gold"])


def test_json(arc):
    _, report, _ = arc
    assert report["baseline"] == "bfloat16" and report["window"] == 64 and report["tokens"] == 128
    assert [arm["kv_cache_dtype"] for arm in report["arms"]] == ["fp8", "int8"]
    for arm in report["arms"]:
        assert 0.5 < arm["share_of_16_bits"] < 0.53 and 0 < arm["mean_kl"] <= arm["max_kl"]
        assert sum(part["tokens"] for part in arm["by_position"]) == 128 and len(arm["by_position"]) == 16
    [task] = report["tasks"]
    assert task["name"] == "arc_easy" and len(task["questions"]) == QUESTIONS
    assert [one["kv_cache_dtype"] for one in task["runs"]] == ["bfloat16", "fp8", "int8"]
    baseline = task["runs"][0]
    for one in task["runs"]:
        assert one["score"] == pytest.approx(sum(item["score"] for item in one["items"]) / QUESTIONS)
        assert one["interval"][0] < one["score"] < one["interval"][1]
    for one in task["runs"][1:]:
        pairs = list(zip(baseline["items"], one["items"]))
        assert one["lost"] == sum(before["score"] > now["score"] for before, now in pairs)
        assert one["gained"] == sum(before["score"] < now["score"] for before, now in pairs)
        assert one["changed"] == sum(before["answer"] != now["answer"] for before, now in pairs)
        change = sum(now["log_likelihood"] - before["log_likelihood"] for before, now in pairs) / QUESTIONS
        assert one["log_likelihood_difference"]["mean"] == pytest.approx(change)
        assert 0 < one["mcnemar_p"] <= 1


def test_text_and_html(arc):
    text, report, html = arc
    assert "| fp8 " in text and "McNemar p" in text and "Recommended" in text
    assert report["recommendation"] in text
    assert html.startswith("<!doctype html>") and html.count("<svg") == 2
    assert "<script" not in html and "http" not in html


def test_html_escapes(tiny, tmp_path):
    """What a file's name, its questions and its answers hold is text in the report."""
    model = tmp_path / "a<b>&.gguf"
    shutil.copy(tiny.rand(), model)
    lines = [{"query": f"Question: <i>{n} & {word}</i>?", "choices": [f"<u>{word}{n}</u>", f"'{n}'", f'"{word}"'], "gold": n % 3}
             for n in range(40) for word in ("hello", "world")]
    (tmp_path / "arc_easy.jsonl").write_text("\n".join(map(json.dumps, lines)))
    page = tmp_path / "report.html"
    result = run("eval", "arc_easy", model, "--data", tmp_path, "--baseline", "float32", "--kv-cache-dtype", "fp8_e5m2", "--html", page,
                 seconds=300)
    assert result.returncode == 0, result.stderr
    html = page.read_text()
    assert "a&lt;b&gt;&amp;" in html and "&lt;u&gt;" in html  # some answers differ
    for tag in ("<b>", "<i>", "<u>"):
        assert tag not in html.replace("<i style", "")


def test_kv_is_one_table_with_what_is_missing_named(tiny, tmp_path):
    model = tiny.rand("rand32", head_dim="32")
    result = run("eval", "kv", model, "--data", tmp_path, "--tokens", 256, "--window", 128, "--limit", 2, seconds=900)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n|--") == 1
    for encoding in ("bfloat16", "int8", "fp8", "fp8:unit", "fp8_e5m2", "int8/int4", "int4"):
        assert f"| {encoding} " in result.stdout
    assert f"not run: arc_easy: {tmp_path}/arc_easy.jsonl" in result.stdout and "not run: lambada" in result.stdout
    assert "Recommended" in result.stdout


def test_encodings_that_the_model_cannot_have_are_named(tiny):
    """Of the ones that are compared unasked; asked for, they are refused."""
    result = run("eval", "kl", tiny.rand(), "--tokens", 64, "--window", 64, seconds=120)
    assert result.returncode == 0 and "| int8 " in result.stdout
    assert "not run: int4: Model architecture not supported for kv_cache_dtype='int4'" in result.stdout
    check_refusal(run("eval", "kl", tiny.rand(), "--kv-cache-dtype", "int4"), "head size 16", status=1)


def test_refusals(tiny, tmp_path):
    """Each before any work is done, naming cause and remedy."""
    model = tiny.rand()
    check_refusal(run("eval", "arc_easy", model, "--data", tmp_path), "arc_easy.jsonl", '"gold"', "--data", status=1)
    check_refusal(run("eval", "arc_eazy", model), "arc_eazy", "did you mean arc_easy", status=2)
    check_refusal(run("eval", "kl,arc_eazy", model), "arc_eazy", status=2)
    check_refusal(run("eval", "kl", model, "--html", tmp_path / "no" / "x.html"), "x.html", status=1)
    check_refusal(run("eval", "kl", model, f"--json={tmp_path}/no/x.json"), "x.json", status=1)
    check_refusal(run("eval", "kl", model, "--kv-cache-dtype", "int9"), "int9", status=1)
    check_refusal(run("eval", "kl", model, "--kv-cache-dtype", "fp8:"), "fp8:", status=1)
    check_refusal(run("eval", "kl", model, "--window", 0), "window", status=1)
    check_refusal(run("eval", "arc_easy", model, "--limit", 0), "--limit", status=2)
    assert not list(tmp_path.iterdir())


def test_json_on_standard_output(tiny, tmp_path):
    result = run("eval", "kl", tiny.rand(), "--tokens", 64, "--window", 64, "--kv-cache-dtype", "int8", "--json", seconds=120)
    assert result.returncode == 0, result.stderr
    report = strict_json(result.stdout.encode())
    assert report["arms"][0]["kv_cache_dtype"] == "int8" and report["baseline_perplexity"] > 1


def test_int4_without_rotation_is_flagged(smollm2_path):
    result = run("eval", "kl", smollm2_path, "--kv-cache-dtype", "int4,int4:norotate", "--tokens", 1024, "--activation-dtype", "float32",
                 "--json", seconds=900)
    assert result.returncode == 0, result.stderr
    rotated, plain = strict_json(result.stdout.encode())["arms"]
    assert rotated["mean_kl_limit"] == plain["mean_kl_limit"] == 0.05
    assert rotated["mean_kl"] < 0.05 and rotated["flags"] == []
    assert plain["mean_kl"] > 0.05 and len(plain["flags"]) == 1
