#!/usr/bin/env python3
"""Writes mini_templates.json beside this file: small templates, one feature each, and what jinja2
3.1.6 set up like transformers makes of them. Run: python3 tests/golden/make_template_golden.py
"""

import json
import pathlib

import jinja_oracle
from template_inputs import TOOL, UNICODE, assistant, system, user

MESSAGES = [system("Be brief."), user("Hi <|im_end|>"), assistant(UNICODE), user("bye")]

# name, template
TEMPLATES = [
    ("break", "{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
    ("continue", "{% for i in range(5) %}{% if i % 2 %}{% continue %}{% endif %}{{ i }},{% endfor %}"),
    ("namespace", "{% set ns = namespace(n=0, last='') %}{% for m in messages %}"
     "{% set ns.n = ns.n + 1 %}{% set ns.last = m.role %}{% endfor %}{{ ns.n }}{{ ns.last }}"),
    ("loop scope", "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}"),
    ("macro", "{% macro m(a, b='B', c=none) %}[{{ a }}|{{ b }}|{{ c }}]{% endmacro %}"
     "{{ m(1) }}{{ m('x', c=2) }}{{ m(b=1, a=2) }}{{ m() }}"),
    ("macro varargs", "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}"),
    ("macro recursion", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}"),
    ("call block", "{% macro box(t) %}<{{ t }}>{{ caller('x') }}</{{ t }}>{% endmacro %}"
     "{% call(v) box('b') %}{{ v }}!{% endcall %}"),
    ("negative slices", "{{ 'abcdef'[-3:] }}{{ 'abcdef'[::-1] }}{{ [1,2,3,4][:-1] }}{{ messages[-1].content }}"
     "{{ messages[::-1]|map(attribute='role')|join(',') }}{{ 'abc'[5:] }}{{ (1,2,3)[1:] }}"),
    ("string methods", "{{ ' x '.strip() }}{{ 'xxaxx'.lstrip('x') }}{{ 'a,b,c'.split(',') }}"
     "{{ 'a b  c'.split() }}{{ 'Ab'.upper() }}{{ 'Ab'.lower() }}{{ 'abc'.startswith('ab') }}"
     "{{ 'abc'.endswith(('x', 'c')) }}{{ 'aXbX'.replace('X', '-', 1) }}{{ 'a-b-c'.rsplit('-', 1) }}"
     "{{ 'hello world'.title() }}{{ 'é'.upper() }}{{ 'a'.join(['1', '2']) }}{{ '%s-%d' % ('a', 3) }}"
     "{{ '{} {x} {:>5}'.format(1, 'r', x=2) }}{{ '{0}{0}{1:.2f}'.format('a', 2.5) }}{{ 'aab'.count('a') }}{{ 'abc'.find('c') }}"),
    ("tojson", "{{ tools|tojson }}\n{{ tools|tojson(indent=2) }}\n{{ {'k': 'é\\n\"', 'b': [true, none, 1.5, 1e20]}|tojson }}"
     "{{ 'é😀'|tojson(ensure_ascii=true) }}{{ {}|tojson(indent=4) }}{{ [[], {}]|tojson(indent=1) }}"
     "{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}"),
    ("dict items", "{% for k, v in {'a': 1, 'b': [2]}.items() %}{{ k }}={{ v }};{% endfor %}"
     "{% for k, v in {'z': 1, 'Y': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}{{ {'a': 1}.get('b', 'no') }}"
     "{{ {'a': 1}|items|list }}{{ {'a': {1: (2,)}} }}"),
    ("is tests", "{{ [1 is number, 'a' is string, none is none, [] is iterable, 'a' is iterable, {} is mapping,"
     " () is sequence, true is boolean, x is defined, x is not defined, 3 is odd, 4 is divisibleby 2,"
     " 1 is true, 'a' is in ['a'], 2 is eq 2, 1.0 is integer, 1.0 is float] }}"),
    ("set block", "{% set x %}a{{ 1 + 1 }}b{% endset %}[{{ x }}]{% set y | upper | trim %} abc {% endset %}[{{ y }}]"),
    ("whitespace", "  {% if true %}\n  a\n    {%- if true %} b {% endif -%}  \n c\n{% endif %}\n\n  {{ 1 }}\n {#- c -#} \n d\n"
     "{%+ if true %}e{% endif +%}\nf\n  {# g #}\nh"),
    ("raw", "{% raw %}{{ x }}{% y %}{% endraw %}{{ '{{' }}"),
    ("strftime_now", "{{ strftime_now('%d %b %Y, %H:%M') }}"),
    ("raise_exception", "{% if messages|length > 3 %}\n{{ raise_exception('Too many: ' ~ messages|length) }}{% endif %}"),
    ("generation", "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content }}{% set z = 1 %}{% endgeneration %}{{ z }}\n{% endfor %}"),
    ("loop variables", "{% for a in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}"
     "{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('x', 'y') }}"
     "{% for b in 'ab' %}{{ loop.index }}{{ b }}{% endfor %};{% endfor %}"),
    ("inline if filter", "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.last }}{{ m.content }}"
     "{% else %}none{% endfor %}{% for m in [] %}{% else %}empty{% endfor %}"),
    ("lazy loop filter", "{% set ns = namespace(stop=false) %}{% for i in range(5) if not ns.stop %}{{ i }}"
     "{% if i == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}"),
    ("conditional", "{{ 'a' if true else 'b' }}{{ 'a' if false }}|{{ (1 if x else 2) + 1 }}"),
    ("undefined", "{{ x }}{{ messages[0].nope }}{{ x is defined }}{{ x|default('d') }}{{ ''|default('e', true) }}{{ not x }}"),
    ("undefined attribute", "a\n\n{{ x.y }}"),
    ("arithmetic", "{{ [7 // 2, -7 // 2, 7 % -3, 2 ** 10, 7 / 2, 1 + 2.5, 'ab' * 2, [1] * 2, -3 % 5, 1e16, 1.0, 0.1 + 0.2] }}"),
    ("comparisons", "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' in 'abc' }}{{ 'x' not in {'a': 1} }}{{ 1 == 1.0 }}{{ '1' == 1 }}"
     "{{ true and 'x' or 'y' }}{{ none or 0 }}{{ [1, 2] < [1, 3] }}"),
    ("filters", "{{ [3, 1, 2]|sort }}{{ ['b', 'A']|sort }}{{ [1, 1, 2]|unique|list }}{{ messages|map(attribute='role')|list }}"
     "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ [1, 2, 3]|select('odd')|list }}"
     "{{ 'a\nb'|indent(2) }}{{ 'a\n\nb'|indent(2, first=true) }}{{ '3.7'|int }}{{ 'x'|int(9) }}{{ 2.5|round }}"
     "{{ [1, 2]|last }}{{ []|first }}{{ 'ab'|reverse }}{{ [1, 2]|sum }}{{ [1, 5, 2]|max }}{{ none|string }}{{ '<'|e }}"),
    ("text filters", "{{ 'ab-cd (ef) gh'|title }}{{ ' a b c '.split(none, 1) }}{{ 'Straße'.casefold() }}{{ true|round }}"
     "{{ '{:05}|{:>5}|{:^7}|{:,}|{:+.1f}'.format('ab', 'c', 'd', 1234567, 2.25) }}{{ '%5s|%-5s|%05d|%.2f' % ('a', 'b', 42, 2.5) }}"),
    ("markup", "{{ 'a'|safe + '<b>\"' }}{{ ('<'|safe) ~ '<' }}"),
    ("unicode", "{{ messages[2].content|length }}{{ messages[2].content[2:9] }}{{ messages[2].content|upper }}{{ '\\u00e9\\x41' }}"
     "{{ [messages[2].content] }}"),
    ("with", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}"),
    ("filter block", "{% filter upper|replace('A', 'b') %}xay{% endfilter %}"),
    ("immutable", "{% set l = [1] %}{{ l.append(2) }}"),
    ("unknown filter", "x\n{{ messages|nope }}"),
    ("unknown filter in condition", "{% if false %}{{ messages|nope }}{% endif %}ok"),
    ("unknown statement", "x\n\n{% frobnicate %}"),
    ("unclosed", "a\n{% if true %}b"),
    ("bad expression", "a\n{{ 1 + }}"),
    ("deep attribute error", "{{ messages[0]['content']['x'].y }}"),
    ("mixed format fields", "{{ '{} {0}'.format(1) }}"),
    ("type error", "{{ 'a' + 1 }}"),
]


def main():
    environment = jinja_oracle.make_environment()
    cases = []
    for name, source in TEMPLATES:
        request = {"messages": MESSAGES, "tools": [TOOL], "bos_token": "<s>", "eos_token": "</s>"}
        template, error = jinja_oracle.compile_template(environment, source)
        if template is None:
            expected = {"parse_error": error}
        else:
            expected = jinja_oracle.render(template, request)
        cases.append({"name": name, "template": source, "expected": expected})
    golden = {"now": jinja_oracle.NOW, "messages": MESSAGES, "tools": [TOOL], "cases": cases}
    path = pathlib.Path(__file__).with_name("mini_templates.json")
    path.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
