"""tools/make_random_model.py: all formats hold the same weights; and bench/peers' engine worker runs what it writes."""
import json
import subprocess
import sys

import numpy as np
import pytest
from serving import BINARY, ROOT

MAKER = ROOT / "tools/make_random_model.py"
DUMP = BINARY.parent / "tests/dump_logprobs"
WORKER = BINARY.parent / "bench/masu_engine_worker"
# Two layers of four heads of 64 over two KV heads: Q and K are reordered differently.
SHAPE = ["--layers", "2", "--hidden", "256", "--ffn", "512", "--heads", "4", "--kv-heads", "2"]
FORMATS = ["bf16", "f16", "q8_0", "q4_0", "hf"]


def make(smollm2_path, out, *arguments, formats=FORMATS):
    command = [sys.executable, MAKER, out, "--tokenizer", smollm2_path, "--formats", ",".join(formats), *SHAPE, *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def path_of(folder, name):
    return folder / (name if name == "hf" else f"{name}.gguf")


def logits(model, tmp_path):
    ids = tmp_path / "ids.txt"
    ids.write_text(" ".join(map(str, range(1000, 1024))))
    subprocess.run([DUMP, model, ids, tmp_path / "out.f32", "float32", "float32", "64", "logits"], check=True)
    return np.fromfile(tmp_path / "out.f32", np.float32)


@pytest.fixture(scope="module")
def folder(smollm2_path, tmp_path_factory):
    out = tmp_path_factory.mktemp("random")
    made = make(smollm2_path, out)
    assert made.returncode == 0, made.stderr
    assert "100.0%" in made.stdout
    return out


def test_every_format_computes_the_same(folder, tmp_path):
    expected = logits(path_of(folder, "bf16"), tmp_path)
    assert expected.std() > 0.1
    # Q and K lie in another order, and so do the sums of their products.
    assert np.abs(logits(path_of(folder, "hf"), tmp_path) - expected).max() < 1e-5 * expected.std()
    # float16 has more bits than bfloat16, but for numbers below 2^-14.
    assert np.abs(logits(path_of(folder, "f16"), tmp_path) - expected).max() < 1e-3 * expected.std()
    for name, most in (("q8_0", 0.05), ("q4_0", 0.6)):
        error = (logits(path_of(folder, name), tmp_path) - expected).std() / expected.std()
        assert 1e-4 < error < most, name


def test_the_tokenizer_is_the_same_in_both_kinds_of_files(folder):
    text = "Hello world! 123 äöü 你好\n\t x  y <|im_end|>"
    cut = [subprocess.run([BINARY, "tokenize", path_of(folder, name)], input=text, capture_output=True, text=True, check=True).stdout
           for name in ("bf16", "hf")]
    assert cut[0] == cut[1] and len(cut[0]) > 50


def test_weights_depend_on_the_seed_alone(folder, smollm2_path, tmp_path):
    for name, seed in (("same", "1"), ("other", "2")):
        assert make(smollm2_path, tmp_path / name, "--seed", seed, formats=["q8_0"]).returncode == 0
    first = (folder / "q8_0.gguf").read_bytes()
    # The name of the model is its folder's.
    assert (tmp_path / "same/q8_0.gguf").read_bytes()[-1 << 20:] == first[-1 << 20:]
    assert (tmp_path / "other/q8_0.gguf").read_bytes()[-1 << 20:] != first[-1 << 20:]


def test_weights_of_a_file_are_written_in_other_formats(folder, smollm2_path, tmp_path):
    made = make(smollm2_path, tmp_path / "copy", "--weights-of", path_of(folder, "bf16"), formats=["bf16", "hf"])
    assert made.returncode == 0, made.stderr
    expected = logits(path_of(folder, "bf16"), tmp_path)
    for name in ("bf16", "hf"):
        assert np.abs(logits(path_of(tmp_path / "copy", name), tmp_path) - expected).max() < 1e-5 * expected.std(), name


@pytest.mark.parametrize("arguments,said", [(["--formats", "q5"], "unknown format 'q5'"), (["--heads", "3"], "heads must divide hidden"),
                                            (["--vocabulary", "1000"], "has 49152 tokens, not 1000")])
def test_what_cannot_be_made_is_refused_in_a_line(smollm2_path, tmp_path, arguments, said):
    made = make(smollm2_path, tmp_path, *arguments)
    assert made.returncode != 0 and said in made.stderr.splitlines()[-1]


def worker(folder, requests, **options):
    settings = {"model": str(path_of(folder, "q8_0")), "kv": "int8", "threads": 1, "cache_bytes": 16 << 20, "sequences": 4, "context": 256,
                "prefix_caching": False, "activations": "auto"}
    done = subprocess.run([WORKER, json.dumps(settings | options)], input="".join(json.dumps(one) + "\n" for one in requests),
                          capture_output=True, text=True, check=False)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("filled", [False, True])
def test_the_engine_worker_times_what_it_is_asked(folder, filled):
    prompts = [list(range(300 + i, 400 + i)) for i in range(4)]
    done, [hello, *answers] = worker(folder, [{"prompts": prompts, "tokens": tokens, "filled": filled} for tokens in (1, 8)])
    assert done.returncode == 0, done.stderr
    assert hello["isa"] and hello["activation_dtype"]
    for answer in answers:
        assert answer["first"] > 0 and answer["rest"] >= 0
    assert answers[1]["rest"] > answers[0]["rest"]


def test_the_engine_worker_says_what_cannot_run(folder):
    done, [_, answer, after] = worker(folder, [{"prompts": [[300] * 300], "tokens": 1, "filled": False},
                                               {"prompts": [[300] * 3], "tokens": 1, "filled": False}])
    assert done.returncode == 0 and "256" in answer["error"] and after["first"] > 0
    done, answers = worker(folder, [], model="nowhere.gguf")
    assert done.returncode == 1 and not answers and "nowhere.gguf" in done.stderr
