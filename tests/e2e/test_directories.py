"""Hugging Face directories, from tokenizer and chat template to the answer, against transformers' tokenizers.

The model is the tiny Llama of golden/, whose logits transformers computed; the greedy answer comes from the reference
forward pass of the unit tests, which is held against those logits by test_checkpoints.py.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from serving import BINARY, ROOT, Server
from test_command_line import check_refusal, run

sys.path.insert(0, str(ROOT / "tests" / "golden"))

import train_tokenizers  # noqa: E402

GOLDEN = pathlib.Path(os.environ.get("MASU_TEST_DATA", ROOT / "../shared")) / "golden" / "llama"
REFERENCE = BINARY.parent / "tests/reference_logits"
EXACT = ("--activation-dtype", "float32", "--kv-cache-dtype", "float32", "--kv-cache-memory-bytes", "4MiB")
MESSAGES = [{"role": "system", "content": "Be größe."}, {"role": "user", "content": "Hello the 2024 мир <|end|>"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
PLAIN = ("{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
OTHER = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
WITH_TOOLS = "{{ bos_token }}{{ tools|tojson }}" + OTHER


@pytest.fixture(scope="module")
def plain_directory(tmp_path_factory):
    """The golden checkpoint with a byte-level tokenizer of at most its 512 tokens, and no template."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("directories") / "plain"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(GOLDEN / name, folder / name)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = train_tokenizers.split(train_tokenizers.LLAMA3)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    # Not the ids that config.json has: what ends a text must come from all the files.
    specials = ["<|pad|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>"]
    train_tokenizers.train_bpe(tokenizer, specials, size=500)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "<|im_end|>"}))
    return folder


@pytest.fixture
def directory(plain_directory, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(plain_directory, folder)
    return folder


def configure(folder, name, **keys):
    """Sets keys of a JSON file, which need not be there; None removes one."""
    path = folder / name
    data = json.loads(path.read_text()) if path.exists() else {}
    data.update(keys)
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def oracle(folder):
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def greedy(folder, prompt, count, tmp_path):
    """The likeliest tokens after a prompt, one by one, and how clear the choices were."""
    ids, margin = list(prompt), np.inf
    for _ in range(count):
        (tmp_path / "ids.txt").write_text(" ".join(map(str, ids)))
        subprocess.run([REFERENCE, folder, tmp_path / "ids.txt", tmp_path / "out.f32"], check=True)
        row = np.fromfile(tmp_path / "out.f32", np.float32).reshape(len(ids), -1)[-1]
        second, best = np.sort(row)[-2:]
        margin = min(margin, best - second)
        ids.append(int(row.argmax()))
    assert margin > 1e-3, "the test needs a prompt whose answer is clear"
    return ids[len(prompt):]


def in_config(folder):
    configure(folder, "tokenizer_config.json", chat_template=PLAIN)


def in_a_file(folder):
    configure(folder, "tokenizer_config.json", chat_template=OTHER)  # which loses
    (folder / "chat_template.jinja").write_text(PLAIN)


def of_a_processor(folder):
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": PLAIN}))


def several_in_config(folder):
    configure(folder, "tokenizer_config.json", chat_template=[
        {"name": "rag", "template": OTHER}, {"name": "default", "template": PLAIN},
        {"name": "tool_use", "template": WITH_TOOLS}])


def several_files(folder):
    (folder / "chat_template.jinja").write_text(PLAIN)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates/tool_use.jinja").write_text(WITH_TOOLS)


@pytest.mark.parametrize("place", [in_config, in_a_file, of_a_processor, several_in_config, several_files],
                         ids=lambda place: place.__name__)
def test_chat(place, directory, serve, tmp_path):
    """The prompt is the one transformers makes, and the answer the likeliest one, served and generated."""
    place(directory)
    hf = oracle(directory)
    if place is of_a_processor:  # which transformers' tokenizers do not read
        hf.chat_template = PLAIN
    server = serve(directory, *EXACT)
    asked = {"temperature": 0, "max_tokens": 8, "return_token_ids": True, "ignore_eos": True}
    for tools in (None, TOOLS):
        prompt = hf.apply_chat_template(MESSAGES, tools=tools, add_generation_prompt=True, tokenize=False)
        # The template's own tokens count; what a user writes is text.
        typed = MESSAGES[1]["content"]
        assert typed in prompt
        before, after = prompt.split(typed)
        hf.backend_tokenizer.encode_special_tokens = False
        ids = hf.backend_tokenizer.encode(before, add_special_tokens=False).ids
        hf.backend_tokenizer.encode_special_tokens = True
        ids += hf.backend_tokenizer.encode(typed, add_special_tokens=False).ids
        hf.backend_tokenizer.encode_special_tokens = False
        ids += hf.backend_tokenizer.encode(after, add_special_tokens=False).ids
        body = {"messages": MESSAGES} | asked | ({"tools": tools, "tool_choice": "none"} if tools else {})
        answer = server.ok("/v1/chat/completions", body)
        assert answer["prompt_token_ids"] == ids, hf.convert_ids_to_tokens(answer["prompt_token_ids"])
        expected = greedy(directory, ids, 8, tmp_path)
        assert answer["choices"][0]["token_ids"] == expected
        assert answer["choices"][0]["message"]["content"] == hf.decode(expected, skip_special_tokens=True)
        request = tmp_path / "request.json"
        request.write_text(json.dumps({"messages": MESSAGES, "tools": tools}))
        assert run("template", directory, "--input", request).stdout == prompt


def test_generate(directory, tmp_path):
    """`masu generate DIR`, through the template and raw, until the end that config.json alone names."""
    in_config(directory)
    hf = oracle(directory)
    for flags, ids in ((("--raw",), hf("Hello the мир").input_ids),
                       ((), hf.apply_chat_template([{"role": "user", "content": "Hello the мир"}], tokenize=True,
                                                   add_generation_prompt=True, return_dict=False))):
        expected = greedy(directory, ids, 8, tmp_path)
        command = ("generate", directory, *EXACT[:4], "--prompt", "Hello the мир", "--max-tokens", 8, *flags)
        configure(directory, "config.json", eos_token_id=[510])
        result = run(*command)
        assert result.returncode == 0, result.stderr
        assert result.stdout == hf.decode(expected, skip_special_tokens=True) + "\n"
        end = next(i for i in range(3, 8) if expected[i] not in expected[:i])
        configure(directory, "config.json", eos_token_id=[510, expected[end]])
        shown = [token for token in expected[:end] if token != hf.eos_token_id]
        assert run(*command).stdout == hf.decode(shown, skip_special_tokens=True) + "\n"


@pytest.mark.parametrize("name", ["generation_config.json", "config.json", "tokenizer_config.json"])
def test_what_ends_an_answer(name, directory, serve, tmp_path):
    """Published checkpoints name the end of a turn in one file or another: each counts."""
    in_config(directory)
    hf = oracle(directory)
    ids = hf.apply_chat_template(MESSAGES[:1], tokenize=True, add_generation_prompt=True, return_dict=False)
    expected = greedy(directory, ids, 8, tmp_path)
    end = next(i for i in range(3, 8) if expected[i] not in expected[:i])
    if name == "tokenizer_config.json":
        configure(directory, name, eos_token=hf.convert_ids_to_tokens(expected[end]))
    else:
        configure(directory, name, eos_token_id=[511, expected[end]])
    answer = serve(directory, *EXACT).ok("/v1/chat/completions", {
        "messages": MESSAGES[:1], "temperature": 0, "max_tokens": 8, "return_token_ids": True})
    assert answer["prompt_token_ids"] == ids
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["stop_reason"] in (None, expected[end])
    assert answer["usage"]["completion_tokens"] == end + 1


@pytest.mark.parametrize("template", [PLAIN, PLAIN.removeprefix("{{ bos_token }}")], ids=["with BOS", "without BOS"])
def test_one_bos(template, directory, serve):
    """B501: chats have the BOS that the template writes, completions the one that the tokenizer is configured to add,
    and one that is written literally in a completion counts as that one."""
    configure(directory, "tokenizer_config.json", chat_template=template, add_bos_token=True)
    hf = oracle(directory)
    server = serve(directory, *EXACT)
    answer = server.ok("/v1/chat/completions", {"messages": MESSAGES[:1], "max_tokens": 1, "return_token_ids": True})
    ids = hf.apply_chat_template(MESSAGES[:1], tokenize=True, add_generation_prompt=True, return_dict=False)
    assert answer["prompt_token_ids"] == ids and answer["usage"]["prompt_tokens"] == len(ids)
    assert ids.count(hf.bos_token_id) == (template is PLAIN)
    plain = hf("Hello the", add_special_tokens=False).input_ids
    for prompt, add, expected in (("Hello the", True, [hf.bos_token_id] + plain), ("Hello the", False, plain),
                                  ("<s>Hello the", True, [hf.bos_token_id] + plain),
                                  ("<s>Hello the", False, [hf.bos_token_id] + plain)):
        answer = server.complete(prompt, max_tokens=1, add_special_tokens=add, return_token_ids=True)
        assert answer["choices"][0]["prompt_token_ids"] == expected
        assert answer["usage"]["prompt_tokens"] == len(expected)


def test_more_tokens_than_rows(directory, serve):
    """B614: tokens that were added beyond the embedding are said at start, and refused in prompts."""
    tokenizers = pytest.importorskip("tokenizers")
    path = str(directory / "tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.add_tokens([f"<extra_{i}>" for i in range(tokenizer.get_vocab_size(), 513)])
    tokenizer.save(path)
    assert tokenizer.token_to_id("<extra_512>") == 512
    server = serve(directory, *EXACT)
    assert "the tokenizer has 513 tokens, the embedding 512" in server.log
    refused = server.post("/v1/completions", {"prompt": "Hello <extra_512>"})
    assert refused.status == 400 and "512" in refused.error["message"], refused.body
    assert server.complete("Hello <extra_511>", max_tokens=2)["usage"]["completion_tokens"] == 2


def test_no_template(directory, serve):
    """Chats are refused with the reason; completions work."""
    server = serve(directory, *EXACT)
    refused = server.post("/v1/chat/completions", {"messages": MESSAGES})
    assert refused.status == 400
    assert refused.error["message"] == "the checkpoint has no chat template; use /v1/completions"
    assert server.complete("Hello", max_tokens=3)["usage"]["completion_tokens"] == 3
    line = check_refusal(run("generate", directory, *EXACT[:4], "--prompt", "x"), status=1)
    assert line == "masu: the checkpoint has no chat template; use generate --raw"


@pytest.mark.parametrize("command", ["serve", "generate", "tokenize", "detokenize", "template"])
def test_no_tokenizer(command, directory, tmp_path):
    (directory / "tokenizer.json").unlink()
    (directory / "chat_template.jinja").write_text(PLAIN)
    (tmp_path / "request.json").write_text(json.dumps({"messages": MESSAGES}))
    more = {"serve": ["--port", 0], "generate": ["--prompt", "x"],
            "template": ["--input", tmp_path / "request.json"]}.get(command, [])
    line = check_refusal(run(command, directory, *more), status=1)
    assert line == (f"masu: {directory}: there is none of tokenizer.json, tokenizer.model and tiktoken.model; "
                    "fetch it, too")


def test_damaged_text_files(directory):
    (directory / "tokenizer_config.json").write_text("{")
    check_refusal(run("serve", directory, "--port", 0), "tokenizer_config.json", "not valid JSON", status=1)
    (directory / "tokenizer_config.json").write_text("{}")
    (directory / "tokenizer.json").write_text("{}")
    check_refusal(run("serve", directory, "--port", 0), directory, "tokenizer.json: model is missing", status=1)


# --- generation_config.json ----------------------------------------------------------------------------------------------

def texts(server, kind, count=6, **fields):
    """What different seeds give."""
    body = {"messages": MESSAGES} if kind == "chat" else {"prompt": "Hello the"}
    path = "/v1/chat/completions" if kind == "chat" else "/v1/completions"
    answers = [server.ok(path, body | {"max_tokens": 6, "seed": seed, "ignore_eos": True, "return_token_ids": True}
                         | fields) for seed in range(count)]
    return {tuple(answer["choices"][0]["token_ids"]) for answer in answers}


def test_sampling_of_the_checkpoint(directory, serve):
    """Where a request says nothing the checkpoint does; one token to draw from tells them apart."""
    in_config(directory)
    configure(directory, "generation_config.json", temperature=1.5, top_k=1, max_new_tokens=5, do_sample=True)
    server = serve(directory, *EXACT)
    said = [line for line in server.log.splitlines() if "default sampling" in line]
    assert len(said) == 1 and "temperature 1.5, top_k 1, max_new_tokens 5" in said[0], server.log
    assert "--generation-config vllm" in said[0]
    for kind in ("chat", "completions"):
        assert len(texts(server, kind)) == 1, "top_k 1 leaves no choice"
        assert texts(server, kind) == texts(server, kind, temperature=0)
        assert len(texts(server, kind, top_k=0)) > 1, "the request wins"
        assert len(texts(server, kind, top_k=None)) == 1, "null says nothing"
    chat = {"messages": MESSAGES, "ignore_eos": True}
    assert server.ok("/v1/chat/completions", chat)["usage"]["completion_tokens"] == 5
    assert server.ok("/v1/chat/completions", chat | {"max_tokens": 9})["usage"]["completion_tokens"] == 9
    assert server.complete("x", ignore_eos=True)["usage"]["completion_tokens"] == 16
    plain = serve(directory, *EXACT, "--generation-config", "vllm")
    assert "default sampling" not in plain.log
    for kind in ("chat", "completions"):
        assert len(texts(plain, kind)) > 1
        assert len(texts(plain, kind, top_k=1)) == 1


def generated(directory, *flags):
    result = run("generate", directory, *EXACT[:4], "--raw", "--prompt", "Hello the", *flags)
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr


def test_sampling_of_generate(directory):
    """Flags win over the checkpoint, which wins over greedy."""
    configure(directory, "generation_config.json", eos_token_id=None, temperature=1.5, max_new_tokens=6)
    configure(directory, "config.json", eos_token_id=None)
    seeds = [generated(directory, "--seed-of-request", seed) for seed in range(4)]
    assert len({text for text, _ in seeds}) > 1
    assert all("temperature 1.5" in log and "(6 tokens" in log for _, log in seeds)
    greedy_text, log = generated(directory, "--generation-config", "vllm", "--max-tokens", 6)
    assert "default sampling" not in log
    assert {generated(directory, "--temperature", 0, "--seed-of-request", seed)[0] for seed in range(3)} == {greedy_text}
    assert "(9 tokens" in generated(directory, "--max-tokens", 9)[1]
    configure(directory, "generation_config.json", top_p=1e-6)
    assert generated(directory, "--seed-of-request", 1)[0] == greedy_text
    assert len({generated(directory, "--top-p", 1, "--seed-of-request", seed)[0] for seed in range(4)}) > 1


@pytest.mark.parametrize("key, value", [("temperature", -1), ("top_p", 1.5), ("top_k", "many"), ("min_p", 2),
                                        ("repetition_penalty", 0), ("max_new_tokens", 0)])
def test_bad_sampling_is_named(key, value, directory):
    configure(directory, "generation_config.json", **{key: value})
    for command in (["serve", "--port", "0"], ["generate", "--prompt", "x"]):
        line = check_refusal(run(command[0], directory, *command[1:]), status=1)
        assert line.startswith(f"masu: {directory}/generation_config.json: key '{key}' is {json.dumps(value)}, expected ")
        assert line.endswith("; correct it, or start with --generation-config vllm")
    ignored = run("generate", directory, *EXACT[:4], "--raw", "--prompt", "x", "--max-tokens", 1, "--generation-config",
                  "vllm")
    assert ignored.returncode == 0, ignored.stderr


def test_unknown_source_of_sampling(directory):
    check_refusal(run("generate", directory, "--prompt", "x", "--generation-config", "mine"), "'mine'", "auto", "vllm",
                  status=1)
