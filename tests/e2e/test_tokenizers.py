"""Tokenizers give the ids and texts of Hugging Face's tokenizers, SentencePiece and tiktoken.

Needs the encode_lines test program (MASU_BUILD, default build/release). The GGUF vocabularies need
the shared test data (MASU_TEST_DATA, default ../shared) and transformers.
"""

import base64
import collections
import functools
import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

import text_lines  # noqa: E402
import train_tokenizers  # noqa: E402

tokenizers = pytest.importorskip("tokenizers")

BUILD = pathlib.Path(os.environ.get("MASU_BUILD", ROOT / "build" / "release"))
DATA = pathlib.Path(os.environ.get("MASU_TEST_DATA", ROOT.parent / "shared"))
PROGRAM = BUILD / "tests" / "encode_lines"
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def ask(path, requests):
    """What encode_lines answers; all requests go through one process."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    run = subprocess.run([str(PROGRAM), str(path)], input=lines.encode(), stdout=subprocess.PIPE, check=True,
                         timeout=300)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert "error" not in answers[0], answers[0]
    assert len(answers) == len(requests)
    return answers


def error_of(path):
    run = subprocess.run([str(PROGRAM), str(path)], input=b'{"text": ""}\n', stdout=subprocess.PIPE, check=True, timeout=60)
    return json.loads(run.stdout.splitlines()[0]).get("error", "no error")


def shown(hf, line, expected, actual):
    return (f"\n  text: {line!r}\n  HF:   {[hf.id_to_token(i) for i in expected][:60]}"
            f"\n  masu: {[hf.id_to_token(i) for i in actual][:60]}")


def is_known_difference(hf, line):
    """Where we mean to differ (docs/tokenizers.md): Unigram finds control and byte tokens in text."""
    if type(hf.model).__name__ != "Unigram":
        return False
    controls = [token.content for token in hf.get_added_tokens_decoder().values() if token.special]
    return any(token in line for token in controls + BYTE_TOKENS)


def without_second_bos(ids, hf):
    """One BOS is enough where the text brings its own."""
    names = ("<s>", "<|begin_of_text|>", "<｜begin▁of▁sentence｜>")
    twice = len(ids) > 1 and ids[0] == ids[1] and hf.id_to_token(ids[0]) in names
    return ids[1:] if twice else ids


def without_specials(hf, ids):
    """hf.decode(ids, skip_special_tokens=True), as it is meant. Hugging Face compares the spelling that a token has
    in normalized text with those of the special tokens as they were added, and so misses special tokens that
    the normalizer changes (test_hugging_face_misses_respelled_special_tokens). Their ids are taken out first."""
    specials = {i for i, token in hf.get_added_tokens_decoder().items() if token.special}
    return hf.decode([i for i in ids if i not in specials], skip_special_tokens=True)


def compare(hf, path, lines, special):
    """Ids equal, decoded texts equal, streams equal; `special` parses and adds special tokens."""
    hf.encode_special_tokens = not special
    answers = ask(path, [{"text": line, "parse_special": special, "add_special": special} for line in lines])
    encoded = hf.encode_batch(lines, add_special_tokens=special)
    unigram = type(hf.model).__name__ == "Unigram"
    compared = ties = 0
    for line, encoding, answer in zip(lines, encoded, answers):
        expected = without_second_bos(encoding.ids, hf) if special else encoding.ids
        if is_known_difference(hf, line):
            continue
        # "." ".." and ".." "." cost the same up to rounding, and serde_json reads scores one bit off.
        if unigram and answer["ids"] != expected and sorted(answer["ids"]) == sorted(expected):
            ties += 1
            continue
        assert answer["ids"] == expected, shown(hf, line, expected, answer["ids"])
        assert answer["decoded"] == without_specials(hf, expected), repr(line)
        assert answer["all"] == hf.decode(expected, skip_special_tokens=False), repr(line)
        assert answer["streamed"], repr(line)
        compared += 1
    assert compared > 0.85 * len(lines) and ties < 0.01 * len(lines)
    return answers


@functools.cache
def trained_json(name):
    return {**train_tokenizers.all_tokenizers(), **train_tokenizers.behaviours()}[name]().to_str()


def trained(name):
    """A tokenizer of train_tokenizers, which may be changed; each is trained once."""
    return tokenizers.Tokenizer.from_str(trained_json(name))


@functools.cache
def all_lines():
    return text_lines.lines()


# Each test that takes lines runs on the first tenth; on all 10,000 with the soak tests.
@pytest.fixture(params=[pytest.param(1_000, id="1k"), pytest.param(10_000, id="10k", marks=pytest.mark.soak)])
def lines(request):
    return all_lines()[:request.param]


@pytest.mark.parametrize("name", list(train_tokenizers.all_tokenizers()))
def test_equals_hugging_face(name, lines, tmp_path):
    hf = trained(name)
    path = tmp_path / "tokenizer.json"
    path.write_text(hf.to_str(), encoding="utf-8")
    hf = tokenizers.Tokenizer.from_file(str(path))
    answers = compare(hf, path, lines, special=False)
    compare(hf, path, lines, special=True)
    if name in ("gpt2", "smollm", "llama3", "deepseek_v3", "tekken", "kimi_json", "llama2", "mistral", "gemma"):
        for line, answer in zip(lines, answers):  # nothing is lost
            if name in ("llama2", "mistral", "gemma") and "▁" in line:
                continue  # the mark for spaces reads as one
            assert answer["decoded"] == line or (name == "mistral" and line.startswith(" ")), repr(line)


@pytest.mark.parametrize("name", list(train_tokenizers.behaviours()))
def test_every_way_to_split(name, lines, tmp_path):
    hf = trained(name)
    path = tmp_path / "tokenizer.json"
    path.write_text(hf.to_str(), encoding="utf-8")
    compare(hf, path, lines[:len(lines) // 5], special=False)


@pytest.mark.parametrize("name", ["gpt2", "llama2", "metaspace_always"])
def test_old_spellings(name, lines, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(train_tokenizers.old_spelling(trained(name)), encoding="utf-8")
    compare(tokenizers.Tokenizer.from_file(str(path)), path, lines[:len(lines) // 5], special=False)


STRINGS = ["ab", "xaby", "x ab y", " ab", "ab ", "  ab  ab  ", "abab", "ab ab", "(ab)", "ab.", "AB", "Ab aB", "xAB y",
           "a b", "tab ab", "äab", "ab9", "ab_", "_ab", "ab-ab", "\tab\n", "ab\r\nab", "　ab　", "日ab本", "ab ab",
           "the ab and AB", "ab👍", "ab́", "", "hello world", "yx ab xy abc ab"]


@pytest.mark.parametrize("normalizer", ["none", "prepend", "replace", "lowercase"])
def test_added_token_flags(normalizer, tmp_path):
    """B505: every combination of flags, with normalizers that move what the token looks like."""
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    for values in itertools.product((False, True), repeat=len(flags)):
        if normalizer in ("prepend", "replace"):
            hf = trained("llama2")
            if normalizer == "replace":
                hf.normalizer = tokenizers.normalizers.Replace(" ", "▁")
        else:
            hf = trained("gpt2")
            if normalizer == "lowercase":
                hf.normalizer = tokenizers.normalizers.Lowercase()
        token = tokenizers.AddedToken("AB" if normalizer == "lowercase" else "ab", **dict(zip(flags, values)))
        (hf.add_special_tokens if token.special else hf.add_tokens)([token, tokenizers.AddedToken("abc")])
        path = tmp_path / "tokenizer.json"
        path.write_text(hf.to_str(), encoding="utf-8")
        hf = tokenizers.Tokenizer.from_file(str(path))
        for special in (False, True):
            compare(hf, path, STRINGS, special)


def test_hugging_face_misses_respelled_special_tokens():
    """B505: why without_specials exists. The same token is left out or shown, by its spelling in the file."""
    hf = trained("gpt2")
    hf.normalizer = tokenizers.normalizers.Lowercase()
    hf.add_special_tokens([tokenizers.AddedToken("AB", normalized=True, special=True)])
    other = tokenizers.Tokenizer.from_str(hf.to_str().replace('"AB"', '"ab"'))
    ids = hf.encode("xAB y").ids
    assert ids == other.encode("xAB y").ids and hf.token_to_id("AB") in ids
    assert other.decode(ids, skip_special_tokens=True) == "x y"
    assert hf.decode(ids, skip_special_tokens=True) == "xab y", "fixed there: without_specials can go"
    assert without_specials(hf, ids) == "x y"


def test_prefix_space(lines, tmp_path):
    """B502: at the start, after special tokens, between two of them; both kinds of Llama."""
    texts = ["user", " user", "  user", "<s>user", "<s> user", "<s></s>", "a</s>user", "a </s> user", "</s>", "\tuser",
             "\nuser", "user user", "▁user", "<s>▁user", "a<s>  b"]
    for name in ("llama2", "mistral", "metaspace_always", "gemma"):
        hf = trained(name)
        path = tmp_path / f"{name}.json"
        path.write_text(hf.to_str(), encoding="utf-8")
        for special in (False, True):
            compare(hf, path, texts + lines[:len(lines) // 5], special)


@pytest.mark.parametrize("form", ["json", "gguf"])
def test_one_bos(form, tmp_path):
    """B501: a template that writes BOS, one that does not, and BOS typed by a user."""
    hf = trained("llama3")
    path = tmp_path / f"tokenizer.{form}"
    bos = "<|begin_of_text|>"
    if form == "json":
        path.write_text(hf.to_str(), encoding="utf-8")
    else:
        write_gguf(path, hf, "llama-bpe", bos)
    bos_id = hf.token_to_id(bos)
    plain = hf.encode("Hi", add_special_tokens=False).ids
    requests = [{"segments": [[bos, True], ["Hi", False]], "add_special": add} for add in (False, True)]
    requests += [{"segments": [["Hi", False]], "add_special": True},
                 {"text": "Hi", "add_special": True},
                 {"text": bos + "Hi", "add_special": True, "parse_special": True}]
    for answer in ask(path, requests):
        assert answer["ids"] == [bos_id] + plain
    # A template without BOS gets none, and what a user types is text.
    assert ask(path, [{"segments": [["Hi", False]]}])[0]["ids"] == plain
    typed = ask(path, [{"segments": [[bos, False], ["Hi", False]], "add_special": True}])[0]
    assert typed["ids"].count(bos_id) == 1 and typed["decoded"] == bos + "Hi"


BYTE_FALLBACK = ["Grüße, Füchse quälen öde Äxte", "Zażółć gęślą jaźń", "日本語のテキスト、カタカナ", "你好，世界。", "👩‍👩‍👧 😀🏳️‍🌈",
                 "\x01\x02\x07\x1b[0m\x7f", "\0", "\u0301\u200d\ufeff", "<0x41>", "a<0xE2><0x82>b", "<0x0A>", "<0xZZ>", "\n\t\r\n"]


def without_letters(name):
    """The tokenizer without any token that holds one of those letters, so that bytes must spell them."""
    data = json.loads(trained_json(name))
    kept = set(map(chr, range(32, 127))) | {"▁"}
    vocab = [piece for piece, _ in sorted(data["model"]["vocab"].items(), key=lambda item: item[1])]
    left = [piece for piece in vocab if set(piece) <= kept]
    data["model"]["vocab"] = {piece: i for i, piece in enumerate(left)}
    data["model"]["merges"] = [pair for pair in data["model"]["merges"] if set("".join(pair)) <= kept]
    assert len(left) < len(vocab) and all(left.index(token["content"]) == token["id"] for token in data["added_tokens"])
    return tokenizers.Tokenizer.from_str(json.dumps(data))


@pytest.mark.parametrize("name", ["llama2", "mistral", "gemma"])
def test_byte_fallback(name, tmp_path):
    """B507: letters that the vocabulary lacks are bytes, decode to themselves, and are never shown as <0xE2>."""
    hf = without_letters(name)
    path = tmp_path / "tokenizer.json"
    path.write_text(hf.to_str(), encoding="utf-8")
    vocab = hf.get_vocab()
    assert not any(char in vocab for char in "ßüżł日語你👩\x01\u0301") and "a" in vocab
    answers = compare(hf, path, BYTE_FALLBACK, special=False)
    for text, answer in zip(BYTE_FALLBACK, answers):
        assert answer["decoded"] == text
        spelled = [piece for piece in map(hf.id_to_token, answer["ids"]) if piece in BYTE_TOKENS]
        odd = [byte for char in text if char.replace(" ", "▁") not in vocab for byte in char.encode()]
        assert spelled == [BYTE_TOKENS[byte] for byte in odd], "a user who types <0x41> gets no byte token"
    parts = ask(path, [{"text": text, "parts": True} for text in BYTE_FALLBACK])
    assert not any("\ufffd" in part or "<0xE" in part for answer in parts for part in answer["parts"])


@pytest.mark.parametrize("name", list(train_tokenizers.all_tokenizers()))
def test_users_write_no_control_tokens(name, tmp_path):
    hf = trained(name)
    path = tmp_path / "tokenizer.json"
    path.write_text(hf.to_str(), encoding="utf-8")
    controls = {i: token.content for i, token in hf.get_added_tokens_decoder().items() if token.special}
    requests = []
    for content in controls.values():
        half = len(content) // 2
        for before, after in itertools.product(("", "x", " "), repeat=2):
            requests.append({"text": before + content + after})
            requests.append({"segments": [[before + content[:half], True], [content[half:] + after, False]]})
            requests.append({"segments": [[before + content[:half], False], [content[half:] + after, True]]})
    unknown = hf.token_to_id("<unk>")  # stands for characters that the vocabulary lacks
    for request, answer in zip(requests, ask(path, requests)):
        assert not set(answer["ids"]) & (set(controls) - {unknown}), request
    whole = [{"segments": [[content, True]]} for content in controls.values()]
    for (token, content), answer in zip(controls.items(), ask(path, whole)):
        assert token in answer["ids"], content


@pytest.mark.parametrize("most", [500, pytest.param(None, id="every", marks=pytest.mark.soak)])
def test_streams_of_twenty_scripts(most, tmp_path):
    """Every character (at first so many of each script), cut at every token: no half characters, no U+FFFD that is
    not in the text."""
    pools = text_lines.characters()
    assert len(pools) >= 20
    for name in ("gpt2", "llama2", "gemma", "unigram_bytes"):
        hf = trained(name)
        path = tmp_path / f"{name}.json"
        path.write_text(hf.to_str(), encoding="utf-8")
        texts = ["".join(pool[:most][i:i + 50]) for pool in pools.values() for i in range(0, len(pool[:most]), 50)]
        texts = [text.replace("▁", "") for text in texts]  # the mark for spaces reads as one
        for text, answer in zip(texts, ask(path, [{"text": text, "parts": True} for text in texts])):
            assert answer["streamed"]
            assert "".join(answer["parts"]) == answer["decoded"]
            assert not any("\ufffd" in part for part in answer["parts"]) or "\ufffd" in text
            if name in ("gpt2", "llama2"):
                assert answer["decoded"] == text


@pytest.mark.parametrize("name", ["spm_bpe", "spm_bpe_nfkc", "spm_unigram", "spm_unigram_bytes"])
def test_equals_sentencepiece(name, lines, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    model = train_tokenizers.sentencepiece_models()[name]
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model)
    oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
    for line, answer in zip(lines, ask(path, [{"text": line} for line in lines])):
        expected = oracle.encode(line)
        assert answer["ids"] == expected, repr(line)
        assert answer["streamed"]
        if oracle.unk_id() not in expected:  # which SentencePiece shows as " ⁇ "
            assert answer["decoded"] == oracle.decode(expected), repr(line)


@pytest.mark.parametrize("legacy", [True, False])
def test_prefix_space_of_sentencepiece_models(legacy, tmp_path):
    """B502: with the legacy flag every stretch of text gets the space, without it only the first of a text."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model = train_tokenizers.sentencepiece_models()["spm_bpe"]
    # The same model without the space: protobuf merges a second normalizer_spec (3) with add_dummy_prefix (3) off.
    bare = sentencepiece.SentencePieceProcessor(model_proto=model + b"\x1a\x02\x18\x00")
    full = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert full.encode("user") != bare.encode("user") and full.encode("user") == bare.encode(" user")
    (tmp_path / "tokenizer.model").write_bytes(model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "LlamaTokenizer", "legacy": legacy, "bos_token": "<s>", "eos_token": "</s>"}))
    for stretches in (["user"], ["", "user"], ["a", "user"], ["a", " user"], ["", "", "user"], ["  a", "b", " c d"]):
        expected = []
        for i, text in enumerate(stretches):
            expected += [full.eos_id()] if i else []
            expected += (full if legacy or i == 0 else bare).encode(text) if text else []
        answer = ask(tmp_path, [{"text": "</s>".join(stretches), "parse_special": True}])[0]
        assert answer["ids"] == expected, stretches


def kimi_directory(folder):
    """A tiktoken.model of a few hundred tokens with Kimi's configuration, and its ranks."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    words = collections.Counter(word for line in train_tokenizers.corpus() for word in line.split())
    for word, _ in sorted(words.items(), key=lambda item: (-item[1], item[0]))[:200]:
        data = (" " + word).encode()
        for end in range(2, len(data) + 1):  # every prefix, so that each token is reached by merges
            ranks.setdefault(data[:end], len(ranks))
    for run in range(2, 12):
        ranks.setdefault(b" " * run, len(ranks))
        ranks.setdefault(b"a" * run, len(ranks))
    (folder / "tiktoken.model").write_bytes(
        b"".join(base64.b64encode(token) + f" {rank}\n".encode() for token, rank in ranks.items()))
    named = {str(len(ranks) + i): {"content": content, "special": True, "normalized": False}
             for i, content in enumerate(["[BOS]", "[EOS]", "<|im_end|>"])}
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}, "bos_token": "[BOS]",
        "eos_token": "[EOS]", "added_tokens_decoder": named}))
    return ranks


def test_equals_tiktoken(lines, tmp_path):
    tiktoken = pytest.importorskip("tiktoken")
    ranks = kimi_directory(tmp_path)
    oracle = tiktoken.Encoding(name="kimi", pat_str=train_tokenizers.KIMI, mergeable_ranks=ranks, special_tokens={})
    for line, answer in zip(lines, ask(tmp_path, [{"text": line} for line in lines])):
        assert answer["ids"] == oracle.encode_ordinary(line), repr(line)
        assert answer["decoded"] == line and answer["streamed"]
    special = ask(tmp_path, [{"segments": [["<|im_end|>", True]]}, {"segments": [["<|im_end|>", False]]}])
    assert special[0]["ids"] == [len(ranks) + 2]
    assert special[1]["ids"] == oracle.encode_ordinary("<|im_end|>")
    (tmp_path / "tokenizer_config.json").unlink()
    assert "no tokenizer_config.json" in error_of(tmp_path)


GGUF = ["gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "llama-spm", "phi-3"]


@pytest.mark.parametrize("name", GGUF)
def test_gguf_equals_transformers(name, lines):
    pytest.importorskip("transformers")
    import gguf_oracle
    path = DATA / "data" / "tokenizers" / f"ggml-vocab-{name}.gguf"
    hf = gguf_oracle.tokenizer_of(path)
    if name == "qwen2":  # the file does not say so; Qwen's tokenizer.json does
        hf.normalizer = tokenizers.normalizers.NFC()
    if name == "deepseek-llm":  # transformers does not look at the file's pre-tokenizer
        hf.pre_tokenizer = train_tokenizers.deepseek_llm()
    if name == "llama-spm":  # as Llama 2's tokenizer.json: every stretch of text gets its space
        hf.normalizer = train_tokenizers.prepend_replace()
        data = json.loads(hf.to_str())
        data["pre_tokenizer"] = None
        hf = tokenizers.Tokenizer.from_str(json.dumps(data))
    hf.encode_special_tokens = True
    compared = 0
    for line, answer in zip(lines, ask(path, [{"text": line} for line in lines])):
        if name == "phi-3" and "</s>" in line:
            continue  # user-defined in the file, special in transformers
        expected = hf.encode(line, add_special_tokens=False).ids
        assert answer["ids"] == expected, shown(hf, line, expected, answer["ids"])
        assert answer["streamed"]
        compared += 1
    assert compared > 0.9 * len(lines)


def write_gguf(path, hf, pre, bos=None):
    """The same byte-level vocabulary as a GGUF file; `bos`: the token that is to begin every text."""
    gguf = pytest.importorskip("gguf")
    data = json.loads(hf.to_str())
    added = {token["id"]: token["special"] for token in data["added_tokens"]}
    size = hf.get_vocab_size()
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    if bos is not None:
        writer.add_bos_token_id(hf.token_to_id(bos))
        writer.add_add_bos_token(True)
    names = {i: piece for piece, i in hf.get_vocab().items()}
    writer.add_token_list([names[i] for i in range(size)])
    writer.add_token_types([(3 if added[i] else 4) if i in added else 1 for i in range(size)])
    writer.add_token_merges([" ".join(pair) for pair in data["model"]["merges"]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


@pytest.mark.parametrize("pre, name", [("gpt-2", "gpt2"), ("smollm", "smollm"), ("llama-bpe", "llama3"),
                                       ("glm4", "llama3"), ("qwen2", "qwen2"), ("qwen35", "qwen35"),
                                       ("deepseek-v3", "deepseek_v3"), ("tekken", "tekken")])
def test_gguf_pre_types(pre, name, lines, tmp_path):
    """B511: known pre-tokenizers give the ids of the tokenizer.json that they stand for."""
    hf = trained(name)
    path = tmp_path / "tokenizer.gguf"
    write_gguf(path, hf, pre)
    hf.encode_special_tokens = True
    for line, answer in zip(lines, ask(path, [{"text": line} for line in lines])):
        expected = hf.encode(line, add_special_tokens=False).ids
        assert answer["ids"] == expected, shown(hf, line, expected, answer["ids"])
        assert answer["streamed"]


@pytest.mark.parametrize("pre", [None, "brand-new"])
def test_gguf_without_a_known_pre_type_is_refused(pre, tmp_path):
    """B511: a missing or unknown one is an error that names the key, not a guess."""
    path = tmp_path / "tokenizer.gguf"
    write_gguf(path, trained("gpt2"), pre)
    message = error_of(path)
    assert "tokenizer.ggml.pre" in message and (pre or "is missing") in message, message


REFUSED = {
    "WordPiece": {"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a"}},
    "WordLevel": {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
    "BertNormalizer": {"normalizer": {"type": "BertNormalizer"}},
    "BertPreTokenizer": {"pre_tokenizer": {"type": "BertPreTokenizer"}},
    "RobertaProcessing": {"post_processor": {"type": "RobertaProcessing"}},
    "WordPiece\"": {"decoder": {"type": "WordPiece"}},
    "fancy": {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "fancy": 1}},
    "brand_new": {"brand_new": {}},
    "dropout": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.5}},
    "merges[0]": {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}},
    "(?<name>": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?<name>a)"}, "behavior": "Isolated"}},
}


@pytest.mark.parametrize("named", list(REFUSED))
def test_refuses_by_name(named, tmp_path):
    data = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "decoder": {"type": "ByteLevel"}}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**data, **REFUSED[named]}))
    message = error_of(path)
    assert named in message and "tokenizer.json" in message, message
    path.write_text(json.dumps(data))
    assert error_of(path) == "no error"
