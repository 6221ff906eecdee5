"""The ten tiny checkpoints of golden/ against transformers' float32 logits: as they are, and as GGUF files written
from them. Chunk 1 is decode; the texts pass the window of the sliding model and the original RoPE lengths."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("MASU_TEST_DATA", ROOT / "../shared")) / "golden"
DUMP = ROOT / "build/release/tests/dump_logprobs"
FAMILIES = ["llama", "llama_bias", "llama_rope_linear", "llama_rope_llama3", "llama_rope_yarn", "llama_tied_mha",
            "mistral_head_dim32", "mistral_window8", "qwen2", "qwen3"]


def logits(model, ids, folder, chunk, kv="float32", activations="float32"):
    ids_file, out = folder / "ids.txt", folder / "out.f32"
    ids_file.write_text(" ".join(map(str, ids)))
    subprocess.run([DUMP, model, ids_file, out, kv, activations, str(chunk), "logits"], check=True)
    return np.fromfile(out, np.float32).reshape(len(ids), -1)


def golden(family):
    path = DATA / family / "golden.npz"
    if not path.exists():
        pytest.fail(f"{path} is missing: set MASU_TEST_DATA to the folder that holds golden/")
    data = np.load(path)
    return data["input_ids"], data["logits"]


@pytest.mark.parametrize("family", FAMILIES)
def test_checkpoint_matches_transformers(family, tmp_path):
    ids, expected = golden(family)
    for chunk in (64, 7, 1):
        got = logits(DATA / family, ids, tmp_path, chunk)
        assert np.abs(got - expected).max() < 1e-3, f"chunk {chunk}"


@pytest.mark.parametrize("family", FAMILIES)
def test_gguf_of_the_checkpoint_matches(family, tmp_path):
    ids, expected = golden(family)
    gguf = tmp_path / "model.gguf"
    subprocess.run([sys.executable, ROOT / "tests/golden/hf_to_gguf.py", DATA / family, gguf], check=True)
    for chunk in (64, 1):
        got = logits(gguf, ids, tmp_path, chunk)
        assert np.abs(got - expected).max() < 1e-3, f"chunk {chunk}"


def test_quantized_caches_stay_close_past_the_window(tmp_path):
    """B111: no jump at the window's edge, in any encoding."""
    ids, expected = golden("mistral_window8")

    def divergence(kv):
        p = expected.astype(np.float64) - np.logaddexp.reduce(expected.astype(np.float64), axis=1, keepdims=True)
        got = logits(DATA / "mistral_window8", ids, tmp_path, 7, kv).astype(np.float64)
        q = got - np.logaddexp.reduce(got, axis=1, keepdims=True)
        return (np.exp(p) * (p - q)).sum(axis=1)

    for kv, limit in (("bfloat16", 2e-3), ("int8", 2e-2), ("fp8", 0.2)):
        kl = divergence(kv)
        assert kl.mean() < limit, kv
        assert kl[8:].mean() < 10 * max(kl[1:8].mean(), 1e-4), f"{kv}: jumps where the window begins"
