"""masu bench report: what the commands of masu bench write, it reads; the page stands alone."""
import html.parser
import json

import pytest
from test_command_line import check_refusal, run

@pytest.fixture(scope="module")
def results(tiny, rand_server, tmp_path_factory):
    """One small result of each command, by its name. How fast this machine is does not matter here."""
    folder = tmp_path_factory.mktemp("bench")
    model = tiny.rand("wide", head_dim=32, context=8192)
    commands = {
        "engine": [model, "--kv-cache-dtype", "bfloat16,int8", "--concurrency", "1,2", "--context", 40, "--pairs", 3, "--prefill-pairs", 1,
                   "--kv-cache-memory-bytes", "8MiB"],
        "kernel": ["--op", "rms_norm", "--op", "linear", "--format", "q8_0", "--shape", "smollm2", "--rows", "1,2", "--seconds", 0,
                   "--isa", "avx2"],
        "integrity": [model, "--pairs", 3],
        "serve": ["--port", rand_server.port, "--num-prompts", 8, "--max-concurrency", 2, "--random-vocab-size", 512, "--random-input-len", 4,
                  "--random-output-len", 3, "--metadata", "kv_cache_dtype=fp8"]}
    paths = {}
    for name, arguments in commands.items():
        paths[name] = folder / f"{name}.json"
        result = run("bench", name, *arguments, f"--json={paths[name]}", seconds=600)
        # integrity fails where checks cost more than 1 %, which on so small a model and a busy machine they may.
        assert result.returncode in ([0, 1] if name == "integrity" else [0]), result.stderr
    return paths


class Checker(html.parser.HTMLParser):
    """Tags are closed in order, and nothing refers to anything outside the page."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.counts, self.text = [], {}, ""

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        assert not {"src", "href"} & {name for name, _ in attrs} and tag != "script"
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def check_page(path):
    page = path.read_text()
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == [] and "url(" not in page and "nan" not in checker.text.lower().split()
    return checker


def test_all_results_on_one_page(results, tmp_path):
    out = tmp_path / "report.html"
    result = run("bench", "report", *results.values(), "--out", out, "--cost-per-hour", 2.5)
    assert result.returncode == 0 and result.stdout == f"{out}: 4 results\n" and result.stderr == ""
    page = check_page(out)
    for words in ("Decode throughput by concurrency", "cost of 1M tokens", "All cells together", "How far steps spread", "Operations, avx2",
                  "What checking pages costs", "Servers under load", "Prefill", "engine.json"):
        assert words in page.text, words
    # Throughput, spread and roofline of one context; linear's five parts and rms_norm; four curves of the load test.
    assert page.counts["svg"] == 3 + 6 + 4
    best = max(cell["arms"][1]["tokens_per_second"]["median"] for cell in json.loads(results["engine"].read_text())["cells"])
    assert f"{2.5 / 3600 / best * 1e6:.4g}" in page.text


@pytest.mark.parametrize("name", ["engine", "kernel", "integrity", "serve"])
def test_one_result(results, tmp_path, name):
    """Without a price costs are relative."""
    out = tmp_path / "report.html"
    assert run("bench", "report", results[name], "--out", out).returncode == 0
    assert "cost of 1M tokens" not in check_page(out).text


def test_what_is_no_result(results, tmp_path):
    other = tmp_path / "other.json"
    for text in ("", "{", "[]", '{"benchmark": 3}', '{"duration": 1.5}'):
        other.write_text(text)
        check_refusal(run("bench", "report", other, "--out", tmp_path / "x.html"), other, "no result of masu bench", status=1)
    newer = json.loads(results["serve"].read_text()) | {"version": 2}
    other.write_text(json.dumps(newer))
    check_refusal(run("bench", "report", other, "--out", tmp_path / "x.html"), other, "version 2", status=1)
    check_refusal(run("bench", "report", tmp_path / "none.json", "--out", tmp_path / "x.html"), "none.json", status=1)
    check_refusal(run("bench", "report", results["serve"], "--out", tmp_path / "no/folder.html"), "no/folder.html", "cannot be written", status=1)
    check_refusal(run("bench", "report", results["serve"]), "--out", status=2)
    assert not (tmp_path / "x.html").exists()
