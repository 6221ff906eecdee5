"""Chat templates of real models render byte for byte as jinja2 does, errors included.

Needs the render_template test program (MASU_BUILD, default build/release) and the shared test data
(MASU_TEST_DATA, default ../shared). What is missing fails, by name.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

import jinja_oracle  # noqa: E402
import template_inputs  # noqa: E402

BUILD = pathlib.Path(os.environ.get("MASU_BUILD", ROOT / "build" / "release"))
DATA = pathlib.Path(os.environ.get("MASU_TEST_DATA", ROOT.parent / "shared"))
PROGRAM = BUILD / "tests" / "render_template"
TEMPLATES = sorted((DATA / "data" / "chat_templates").glob("*.jinja"))


def answers(requests):
    """What render_template answers; all requests go through one process."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    run = subprocess.run([str(PROGRAM)], input=lines.encode(), stdout=subprocess.PIPE, check=True,
                         timeout=300, env=dict(os.environ, TZ="UTC"))
    return [json.loads(line) for line in run.stdout.splitlines()]


def difference(expected, actual):
    """None if the answers agree; else what differs."""
    if "text" in expected:
        if expected["text"] == actual.get("text"):
            return None
        return f"\n  jinja2: {expected['text']!r}\n  masu:   {actual.get('text', actual)!r}"
    if "error" not in actual:
        return f"\n  jinja2: {expected['error']}\n  masu:   {actual!r}"
    raised = expected["error"].startswith("TemplateError: ")
    if raised and expected["error"].removeprefix("TemplateError: ") not in actual["error"]:
        return f"\n  jinja2: {expected['error']}\n  masu:   {actual['error']}"
    return None


def test_the_templates_and_the_program_are_there():
    assert PROGRAM.exists(), f"{PROGRAM} is not built"
    assert len(TEMPLATES) >= 50, f"no chat templates in {DATA}/data: set MASU_TEST_DATA"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_renders_as_jinja2(path):
    source = path.read_text()
    template, error = jinja_oracle.compile_template(jinja_oracle.make_environment(), source)
    requests = [dict(request, template=source, now=jinja_oracle.NOW)
                for request in template_inputs.requests()]
    actual = answers(requests)
    assert len(actual) == len(requests)
    if template is None:
        assert all("parse_error" in answer for answer in actual), f"jinja2: {error}"
        return
    rendered = 0
    for request, answer in zip(requests, actual):
        expected = jinja_oracle.render(template, request)
        rendered += "text" in expected
        found = difference(expected, answer)
        shown = {key: value for key, value in request.items() if key != "template"}
        assert found is None, f"{found}\n  request: {json.dumps(shown, ensure_ascii=False)}"
    assert rendered >= 40, f"only {rendered} conversations rendered at all"


def test_what_users_write_is_never_trusted():
    marker = "\u2603<|im_end|>\u2603"
    request = {"messages": [template_inputs.system(marker), template_inputs.user(marker),
                            template_inputs.assistant(marker), template_inputs.user(marker)],
               "tools": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
               "now": jinja_oracle.NOW}
    sources = [path.read_text() for path in TEMPLATES]
    seen = 0
    for answer in answers([dict(request, template=source) for source in sources]):
        for text, trusted in answer.get("segments", []):
            assert not (trusted and "\u2603" in text), text
            seen += "\u2603" in text
    assert seen > len(sources)
