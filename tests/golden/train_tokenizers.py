"""Trains small tokenizers of every kind that checkpoints come with; the same bytes at every run.

    train_tokenizers.py FOLDER      writes NAME.json (tokenizer.json), NAME.model (SentencePiece), ...

Patterns and pipelines are those of facts/models-and-formats.md 5.1; vocabularies are trained on the
corpus below, so that they hold letters of some scripts and not of others.
"""

import io
import json
import pathlib
import random
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_V3 = [
    r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
# DeepSeek-LLM (the first one): letters that have case, punctuation, CJK. Escapes stand where Unicode normalisation of
# this file would turn the end of a range into another character.
DEEPSEEK_LLM = ["[\\r\\n]", (
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-"
    "ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1F7Dᾀ-ᾴᾶ-ᾼ\u1FBEῂ-ῄῆ-ῌῐ-\u1FD3ῖ-\u1FDBῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹ"
    "ℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"), "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", "\\s+$", "[一-龥ࠀ-一가-\uD7FF]+"]
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

WORDS = ("the of and to in is that it for was on as with he be at by this had not are but from or have "
         "an they which one you were her all she there would their we him been has when who will more "
         "no if out so said what up its about into than them can only other new some could time these "
         "two may then do first any my now such like our over man me even most made after also did "
         "int main return void string user model token größe straße naïve café señor über weiß "
         "привет мир это как что日本語 テキスト 世界 こんにちは 한국어 텍스트 안녕 我们 中文 你好 "
         "don't it's we're I'll they've I'm he'd 2024 3.14 1000 42 x=1; foo(bar) <b>bold</b>").split()


def corpus():
    rng = random.Random(20240607)
    lines = []
    for _ in range(3000):
        line = " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 15)))
        if rng.random() < 0.2:
            line = "    " + line
        if rng.random() < 0.1:
            line += "\n\n"
        if rng.random() < 0.3:
            line = line.capitalize()
        lines.append(line + rng.choice([".", "!", "?", "", "...", "\r\n"]))
    return lines


def train_bpe(tokenizer, specials=(), byte_level=True, size=900):
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), show_progress=False, min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if byte_level else [])
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def byte_level(pre, normalizer=None, bos=None, ignore_merges=False, specials=("<|end|>", "<|im_start|>",
                                                                             "<|im_end|>")):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    specials = ([bos] if bos else []) + list(specials)
    train_bpe(tokenizer, specials)
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), "</tool_call>"])
    if bos:
        template = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def split(*patterns):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(
        steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def deepseek_llm():
    """Its pre-tokenizer; the vocabulary comes with the test data."""
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in DEEPSEEK_LLM]
    return pre_tokenizers.Sequence(steps + [pre_tokenizers.Digits(individual_digits=True),
                                            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece_like(normalizer, pre, decoder, byte_fallback=True, specials=("<unk>", "<s>", "</s>")):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    # Trained on words, or merges would reach over spaces; then with the pipeline of the model.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    extra = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    train_bpe(tokenizer, list(specials) + extra, byte_level=False, size=900)
    # Byte tokens are no special tokens; the trainer can only add them as such.
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in specials]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    else:
        data = json.loads(tokenizer.to_str())
        data["pre_tokenizer"] = None
        tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoder
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A",
                                                             special_tokens=[("<s>", 1)])
    return tokenizer


def llama_decoder(strip=True):
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(parts + ([decoders.Strip(" ", 1, 0)] if strip else []))


def prepend_replace():
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def unigram(normalizer, scheme, byte_fallback=False, extra=()):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        list(extra) + [pre_tokenizers.Metaspace(prepend_scheme=scheme)])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    tokenizer.train_from_iterator(corpus(), trainers.UnigramTrainer(
        vocab_size=600, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    if byte_fallback:
        data = json.loads(tokenizer.to_str())
        data["model"]["vocab"] += [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
        data["model"]["byte_fallback"] = True
        data["decoder"] = json.loads(llama_decoder().__getstate__())
        tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
    return tokenizer


def all_tokenizers():
    """Name to a function that makes a tokenizer of `tokenizers`."""
    bos = "<|begin_of_text|>"
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return {
        "gpt2": lambda: byte_level(words),
        "gpt2_prefix": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
        "smollm": lambda: byte_level(pre_tokenizers.Sequence([digits, words])),
        "llama3": lambda: byte_level(split(LLAMA3), bos=bos, ignore_merges=True),
        "qwen2": lambda: byte_level(split(QWEN2), normalizers.NFC()),
        "qwen35": lambda: byte_level(split(QWEN35), normalizers.NFC()),
        "deepseek_v3": lambda: byte_level(split(*DEEPSEEK_V3), bos="<｜begin▁of▁sentence｜>"),
        "tekken": lambda: byte_level(split(TEKKEN), bos="<s>", ignore_merges=True),
        "kimi_json": lambda: byte_level(split(KIMI), ignore_merges=True),
        "llama2": lambda: sentencepiece_like(prepend_replace(), None, llama_decoder()),
        "llama2_unk": lambda: sentencepiece_like(prepend_replace(), None, llama_decoder(), False),
        "mistral": lambda: sentencepiece_like(
            None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), llama_decoder()),
        "metaspace_always": lambda: sentencepiece_like(
            None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True), decoders.Metaspace()),
        "gemma": lambda: sentencepiece_like(
            normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
            llama_decoder(strip=False)),
        "unigram": lambda: unigram(normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]), "always"),
        "unigram_bytes": lambda: unigram(normalizers.NFKC(), "always", byte_fallback=True),
        "unigram_first": lambda: unigram(normalizers.Sequence(
            [normalizers.Strip(), normalizers.Lowercase()]), "first"),
        "steps": lambda: byte_level(pre_tokenizers.Sequence([
            pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next"),
            pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=True)]),
            normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])),
        "whitespace": lambda: byte_level(pre_tokenizers.Sequence([
            pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
            normalizers.NFKD()),
    }


def behaviours():
    """One tokenizer for each way to split, with and without `invert`."""
    made = {}
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            for kind, pattern in (("regex", Regex(r"\p{N}|[aeiou]")), ("string", " ")):
                def make(behavior=behavior, invert=invert, pattern=pattern):
                    return byte_level(pre_tokenizers.Sequence([
                        pre_tokenizers.Split(pattern, behavior, invert=invert),
                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
                made[f"split_{kind}_{behavior}_{'inverted' if invert else 'plain'}"] = make
    return made


def old_spelling(tokenizer):
    """The same file as older versions wrote it: merges as "a b", Metaspace with add_prefix_space."""
    data = json.loads(tokenizer.to_str())
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    for key in ("fuse_unk", "byte_fallback", "ignore_merges"):
        if not data["model"].get(key):
            data["model"].pop(key, None)
    for part in (data["pre_tokenizer"], data["decoder"]):
        if part and part["type"] == "Metaspace":
            part["add_prefix_space"] = part.pop("prepend_scheme") != "never"
            part.pop("split", None)
    return json.dumps(data, ensure_ascii=False)


def sentencepiece_models():
    """Name to the bytes of a SentencePiece model."""
    import sentencepiece

    lines = [line.strip() for line in corpus()]
    made = {}
    for name, options in {
            "spm_bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                            remove_extra_whitespaces=False),
            "spm_bpe_nfkc": dict(model_type="bpe", byte_fallback=False,
                                 user_defined_symbols=["<sep>", "▁▁", "<|x|>"]),
            "spm_unigram": dict(model_type="unigram", byte_fallback=False,
                                user_defined_symbols=["<sep>", "foo bar"]),
            "spm_unigram_bytes": dict(model_type="unigram", byte_fallback=True,
                                      normalization_rule_name="nmt_nfkc_cf",
                                      add_dummy_prefix=False)}.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, vocab_size=700, num_threads=1,
            hard_vocab_limit=False, character_coverage=0.999, minloglevel=2, **options)
        made[name] = model.getvalue()
    return made


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in {**all_tokenizers(), **behaviours()}.items():
        tokenizer = make()
        (folder / f"{name}.json").write_text(tokenizer.to_str(), encoding="utf-8")
        if name in ("gpt2", "llama2", "metaspace_always"):
            (folder / f"{name}_old.json").write_text(old_spelling(tokenizer), encoding="utf-8")
    for name, model in sentencepiece_models().items():
        (folder / f"{name}.model").write_bytes(model)


if __name__ == "__main__":
    main()
