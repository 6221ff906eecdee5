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


def error_of_logits(checkpoint, golden, tmp_path):
    """Largest difference, and of the probabilities."""
    (tmp_path / "ids.txt").write_text(" ".join(map(str, golden["input_ids"])))
    subprocess.run([PROGRAM, checkpoint, tmp_path / "ids.txt", tmp_path / "out.f32"], check=True)
    logits = np.fromfile(tmp_path / "out.f32", np.float32).reshape(golden["logits"].shape)
    return np.abs(logits - golden["logits"]).max()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["directory", "gguf", "split"])
def test_logits_are_those_of_transformers(name, form, tmp_path):
    folder = folder_of(name)
    checkpoint = folder
    if form != "directory":
        checkpoint = load_converter().convert(folder, tmp_path / "model.gguf", parts=3 if form == "split" else 1)
    # float32 sums of 64 to 176 terms in 3 layers, at logits of up to about 10.
    assert error_of_logits(checkpoint, np.load(folder / "golden.npz"), tmp_path) < 1e-3


@pytest.mark.parametrize("kind,bound", [("f16", 0.1), ("bf16", 0.5), ("q8_0", 0.5), ("q5_1", 3.0), ("q5_0", 3.0)])
def test_other_types_stay_close(kind, bound, tmp_path):
    folder = folder_of("llama")
    checkpoint = load_converter().convert(folder, tmp_path / "model.gguf", kind=kind)
    error = error_of_logits(checkpoint, np.load(folder / "golden.npz"), tmp_path)
    assert 0 < error < bound


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
