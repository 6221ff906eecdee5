"""Chat templates as transformers renders them: the oracle for the C++ interpreter.

Set up like transformers' _compile_jinja_template: jinja2's immutable sandbox with trim_blocks,
lstrip_blocks, loop controls and generation blocks, its own tojson, raise_exception and
strftime_now. The clock is fixed so that results can be compared.
"""

import datetime
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1753920000  # 2025-07-31 00:00:00 UTC


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the assistant wrote; it renders as its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def _raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def _tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(format):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(
        tzinfo=None).strftime(format)


def make_environment():
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def render(template, request):
    """The expected answer of the render_template test program to a request."""
    variables = dict(request.get("arguments") or {})
    variables.setdefault("documents", None)
    variables.update(
        messages=request.get("messages"),
        tools=request.get("tools"),
        add_generation_prompt=request.get("add_generation_prompt", True),
        bos_token=request.get("bos_token", ""),
        eos_token=request.get("eos_token", ""),
    )
    try:
        return {"text": template.render(**variables)}
    except Exception as error:  # whatever a template raises is an answer
        return {"error": f"{type(error).__name__}: {error}"}


def compile_template(environment, source):
    """The template, or None and the error."""
    try:
        return environment.from_string(source), None
    except jinja2.exceptions.TemplateError as error:
        return None, f"{type(error).__name__}: {error}"
