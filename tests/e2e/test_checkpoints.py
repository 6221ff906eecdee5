"""The ten golden checkpoints mean to masu what they mean to transformers, from a directory and from GGUF.

The graph here is the reference forward pass of the unit tests, so what is tested is reading: names, shapes, the order of
Q and K rows, RoPE scaling, biases, norms, windows, tied heads.
"""
import importlib.util
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("MASU_TEST_DATA", ROOT / "../shared")).resolve() / "golden"
PROGRAM = pathlib.Path(os.environ.get("MASU_BINARY", ROOT / "build/release/masu")).parent / "tests/reference_logits"
NAMES = ["llama", "llama_bias", "llama_rope_linear", "llama_rope_llama3", "llama_rope_yarn", "llama_tied_mha",
         "mistral_head_dim32", "mistral_window8", "qwen2", "qwen3"]


def load_converter():
    spec = importlib.util.spec_from_file_location("hf_to_gguf", ROOT / "tests/golden/hf_to_gguf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def folder_of(name):
    folder = DATA / name
    if not (folder / "golden.npz").exists():
        pytest.skip(f"{folder / 'golden.npz'} is missing")
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is missing")
    return folder


def logits_of(checkpoint, ids, tmp_path):
    (tmp_path / "ids.txt").write_text(" ".join(map(str, ids)))
    subprocess.run([PROGRAM, checkpoint, tmp_path / "ids.txt", tmp_path / "out.f32"], check=True)
    return np.fromfile(tmp_path / "out.f32", np.float32).reshape(len(ids), -1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["directory", "gguf", "split"])
def test_logits_are_those_of_transformers(name, form, tmp_path):
    folder = folder_of(name)
    checkpoint = folder
    if form != "directory":
        checkpoint = load_converter().convert(folder, tmp_path / "model.gguf", parts=3 if form == "split" else 1)
    # float32 sums of 64 to 176 terms in 3 layers, at logits of up to about 10.
    golden = np.load(folder / "golden.npz")
    assert np.abs(logits_of(checkpoint, golden["input_ids"], tmp_path) - golden["logits"]).max() < 1e-3


@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
def test_stored_types_mean_their_decoded_values(kind, tmp_path):
    """A file in a type gives the bits of the logits of a float32 file with what gguf decodes of it."""
    folder = folder_of("llama")
    converter = load_converter()
    stored = converter.convert(folder, tmp_path / "stored.gguf", kind=kind)
    decoded = converter.convert(folder, tmp_path / "decoded.gguf", kind=kind, decoded=True)
    ids = np.load(folder / "golden.npz")["input_ids"][:40]
    assert np.array_equal(logits_of(stored, ids, tmp_path), logits_of(decoded, ids, tmp_path))


def test_missing_part_is_named(tmp_path):
    folder = folder_of("llama")
    first = load_converter().convert(folder, tmp_path / "model.gguf", parts=3)
    (tmp_path / "model-00002-of-00003.gguf").unlink()
    (tmp_path / "ids.txt").write_text("1")
    result = subprocess.run([PROGRAM, first, tmp_path / "ids.txt", tmp_path / "out"], capture_output=True, text=True,
                            check=False)
    assert result.returncode == 1
    assert "model-00002-of-00003.gguf: part 2 of 3 of the split model is missing" in result.stderr


def test_altered_copy_is_refused(tmp_path):
    folder = folder_of("qwen3")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    path = copy / "model.safetensors"
    path.chmod(0o600)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"layers.1.self_attn.q_norm", b"layers.1.self_attn.x_norm", 1))
    (tmp_path / "ids.txt").write_text("1")
    result = subprocess.run([PROGRAM, copy, tmp_path / "ids.txt", tmp_path / "out"], capture_output=True, text=True,
                            check=False)
    assert result.returncode == 1
    assert "missing: 'model.layers.1.self_attn.q_norm.weight' [32]" in result.stderr
    assert "unused: 'model.layers.1.self_attn.x_norm.weight' [32]" in result.stderr
