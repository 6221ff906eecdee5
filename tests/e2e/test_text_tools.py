"""masu tokenize, detokenize and template: the tools for people who debug text."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

import train_tokenizers  # noqa: E402

MASU = os.environ.get("MASU_BINARY", str(ROOT / "build" / "release" / "masu"))
DATA = pathlib.Path(os.environ.get("MASU_TEST_DATA", ROOT.parent / "shared"))
VOCABULARY = DATA / "data" / "tokenizers" / "ggml-vocab-llama-bpe.gguf"


def masu(*arguments, text=b""):
    return subprocess.run([MASU, *map(str, arguments)], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=60)


def output(*arguments, text=b""):
    run = masu(*arguments, text=text)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture
def directory(tmp_path):
    pytest.importorskip("tokenizers")
    tokenizer = train_tokenizers.all_tokenizers()["llama2"]()
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>", "eos_token": {"content": "</s>"},
        "chat_template": "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}"
                         "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"}))
    return tmp_path


def test_vocabulary_only_gguf():
    assert VOCABULARY.exists(), f"{VOCABULARY} is missing: set MASU_TEST_DATA"
    assert output("tokenize", VOCABULARY, text=b"Hello world") == b"128000 9906 1917\n"
    assert output("tokenize", VOCABULARY, "--no-special", text=b"Hello world") == b"9906 1917\n"
    pieces = output("tokenize", VOCABULARY, "--no-special", "--pieces", text=b"Hello world")
    assert pieces.decode() == "9906\tHello\n1917\tĠworld\n"
    # Byte for byte: the newline of an editor counts, and so do bytes that are no text.
    assert output("tokenize", VOCABULARY, "--no-special", text=b"a\n") == b"64 198\n"
    for raw in (b"a\r\nb", b"\xff\xfe\x00", "größe 日本 👨‍👩‍👧".encode(), b"<|eot_id|>", b""):
        ids = output("tokenize", VOCABULARY, "--no-special", text=raw)
        back = output("detokenize", VOCABULARY, text=ids)
        assert back == raw.decode("utf-8", "replace").encode()


@pytest.mark.parametrize("what", ["directory", "tokenizer.json"])
def test_hugging_face(directory, what):
    path = directory if what == "directory" else directory / what
    ids = output("tokenize", path, text="Hello größe".encode())
    assert ids.split()[0] == b"1"
    assert output("detokenize", path, "--no-special", text=ids) == "Hello größe".encode()
    assert output("detokenize", path, text=ids) == "<s> Hello größe".encode()
    plain = output("tokenize", path, "--no-special", text="Hello größe".encode())
    assert output("detokenize", path, text=plain) == "Hello größe".encode()


def test_errors_are_one_line(directory, tmp_path):
    for arguments, text in ((("tokenize", tmp_path / "absent"), b""), (("tokenize", ROOT / "src"), b""),
                            (("detokenize", directory), b"1 999999999"), (("detokenize", directory), b"1 x"),
                            (("detokenize", directory), b"99999999999999999999")):
        run = masu(*arguments, text=text)
        assert run.returncode == 1 and run.stdout == b""
        assert run.stderr.startswith(b"masu: ") and run.stderr.count(b"\n") == 1, run.stderr


def test_template_of_a_model(directory, tmp_path):
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi ☃\n"}]}))
    expected = "<s>[user] Hi ☃\n</s>[assistant]".encode()
    assert output("template", directory, "--input", request) == expected
    assert output("template", directory, "--input", "-", text=request.read_bytes()) == expected
    assert output("template", directory, "--input", request, "--bos-token", "B").startswith(b"B[user]")
    request.write_text(json.dumps({"messages": [], "add_generation_prompt": False}))
    assert output("template", directory, "--input", request) == b"<s>"


def test_template_file(tmp_path):
    source = tmp_path / "chat.jinja"
    request = tmp_path / "request.json"
    source.write_text("{{ bos_token }}{{ tools|tojson }}{{ thinking }}{{ messages[0].content }}{{ eos_token }}\n\n")
    request.write_text(json.dumps({"messages": [{"role": "user", "content": "x"}], "tools": [{"a": "é"}],
                                   "chat_template_kwargs": {"thinking": True}}))
    shown = output("template", source, "--input", request, "--bos-token", "<b>", "--eos-token", "<e>")
    assert shown == "<b>[{\"a\": \"é\"}]Truex<e>\n".encode()  # Jinja drops one newline at the end
    source.write_text("\n{{ raise_exception('no such role') }}")
    run = masu("template", source, "--input", request)
    assert run.returncode == 1 and run.stdout == b""
    assert b"line 2" in run.stderr and b"no such role" in run.stderr
    request.write_text("{")
    assert masu("template", source, "--input", request).returncode == 1
    assert masu("template", source).returncode == 2
