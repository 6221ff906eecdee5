"""Scales of K and V that checkpoints and scale files bring: what is found, shown and refused (report B103)."""
import json
import subprocess

import pytest
from serving import TINY_MODEL_MAKER
from test_command_line import check_refusal, run

MEMORY = ("--kv-cache-memory-bytes", "1MiB")
FORMS = {"compressed-tensors": "compressed-tensors", "modelopt": "modelopt", "quark": "AutoFP8 or Quark",
         "fused": "fused projection", "combined": "older name kv_scale"}


def directory(path, *arguments):
    subprocess.run([TINY_MODEL_MAKER, "rand", "--directory", "--out", path, *map(str, arguments)], check=True, capture_output=True)
    return path


def scale_file(path, layers, **more):
    path.write_text(json.dumps({"kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {"0": layers}}} | more))
    return path


def rows(text):
    """layer -> K min, K max, V min, V max"""
    return {int(line.split()[0]): [float(number) for number in line.split()[1:]] for line in text.splitlines()[2:]}


@pytest.mark.parametrize("form", FORMS)
def test_info_shows_what_a_checkpoint_brings(form, tmp_path):
    model = directory(tmp_path / "model", "--kv-scales", form, "--k-scale", "0.0125", "--v-scale", "0.5,0.25")
    shown = run("info", model, "--kv")
    assert shown.returncode == 0 and shown.stderr == ""
    kind = "per tensor" if form == "combined" else "per KV head"
    assert shown.stdout.startswith(f"K/V scales: {FORMS[form]}, {kind} (value = code x scale)\n")
    v = [0.0125, 0.0125] if form == "combined" else [0.25, 0.5]
    assert rows(shown.stdout) == {layer: [0.0125, 0.0125, *v] for layer in (0, 1)}


def test_info_says_that_there_are_none_or_why(tmp_path, tiny):
    for model in (tiny.rand(), directory(tmp_path / "plain")):
        shown = run("info", model, "--kv")
        assert shown.returncode == 0 and shown.stdout == "no K/V scales: dynamic scales are computed\n" and shown.stderr == ""
    wrong = run("info", directory(tmp_path / "wrong", "--kv-scales", "modelopt", "--v-scale", "-1"), "--kv")
    problem = "no usable K/V scales: 'model.layers.0.self_attn.v_proj.v_scale' is -1, expected a finite number above 0"
    assert wrong.returncode == 0 and problem in wrong.stdout and problem in wrong.stderr


def test_info_shows_a_scale_file(tmp_path, tiny):
    path = scale_file(tmp_path / "scales.json", {"0": 0.5, "1": {"k": 0.25, "v": 4}}, model_type="llama")
    for model in (tiny.rand(), directory(tmp_path / "model", "--kv-scales", "modelopt")):
        shown = run("info", model, "--kv", "--quantization-param-path", path)
        assert shown.returncode == 0 and f"{path}, per tensor" in shown.stdout
        assert rows(shown.stdout) == {0: [0.5] * 4, 1: [0.25, 0.25, 4, 4]}


def test_scale_files_that_do_not_fit_are_refused_before_weights_are_read(tmp_path, tiny):
    partial = scale_file(tmp_path / "partial.json", {"0": 0.5})
    other = scale_file(tmp_path / "other.json", {"0": 0.5, "1": 0.5}, model_type="qwen2")
    text = tmp_path / "text.txt"
    text.write_text("hello world " * 20)
    for command in (["serve", tiny.rand(), "--port", "0"], ["generate", tiny.rand(), "-p", "x"], ["info", tiny.rand(), "--kv"],
                    ["eval", "kl", tiny.rand(), "--text", text]):
        check_refusal(run(*command, "--quantization-param-path", partial), partial, "scaling_factor.0.1' is absent", status=1)
        check_refusal(run(*command, "--quantization-param-path", other), "model_type", "qwen2", "llama", status=1)
        check_refusal(run(*command, "--quantization-param-path", tmp_path / "none.json"), "none.json: no such file", status=1)
    check_refusal(run("info", tiny.rand(), "--quantization-param-path", partial), "--kv", status=2)
    check_refusal(run("info", "--kv"), "MODEL", status=1)
    check_refusal(run("info", "--kv", "--why"), "MODEL", status=1)


def test_a_checkpoint_that_asks_for_fp8_gets_it(tmp_path, serve):
    """As long as no flag says otherwise. The answer is that of the GGUF file with the same cache."""
    model = directory(tmp_path / "model", "--kv-scales", "compressed-tensors", "--k-scale", "0.02", "--v-scale", "0.02")
    assert serve(model, *MEMORY).cache()["cache_dtype"] == "fp8_e4m3"
    assert serve(model, *MEMORY, "--kv-cache-dtype", "bfloat16").cache()["cache_dtype"] == "bfloat16"
    info = run("info", model)
    assert info.returncode == 0 and any("fp8_e4m3" in line and ">" in line for line in info.stdout.splitlines()), info.stdout


def test_effective_scales_can_be_read_from_a_running_server(tmp_path, serve):
    model = directory(tmp_path / "model", "--kv-scales", "compressed-tensors", "--k-scale", "0.0125", "--v-scale", "0.5,0.25")
    server = serve(model, *MEMORY, "--enable-debug-endpoints", "--kv-guard", "off")
    (default, wide) = server.get("/debug/kv").json["layouts"]
    assert default["kv_cache_dtype"] == "fp8_e4m3:checkpoint" and wide["kv_cache_dtype"] == "bfloat16"
    for layer in default["layers"]:
        assert layer["k"].pop("scales") == pytest.approx([0.0125, 0.0125])
        assert layer["k"] == {"encoding": "fp8_e4m3", "scale": "checkpoint", "rotated": False}
        assert layer["v"]["scales"] == [0.5, 0.25]
    server = serve(model, *MEMORY, "--enable-debug-endpoints", "--kv-scale", "dynamic", "--kv-guard", "off")
    assert {layer["v"]["scale"] for layer in server.get("/debug/kv").json["layouts"][0]["layers"]} == {"dynamic"}


def test_the_directory_is_the_model_of_the_gguf_file(tmp_path, tiny):
    model = directory(tmp_path / "model")
    exact = ("--activation-dtype", "float32", "--kv-cache-dtype", "float32", *MEMORY)
    for text in ("hello world", "the user and the 2024 world\n\n  hello", "日本語 naïve 😀", "<|im_start|>user\n<tool_call>"):
        assert run("tokenize", model, text=text).stdout == run("tokenize", tiny.rand(), text=text).stdout
    answers = [run("generate", path, "-p", "hello world", "--max-tokens", "12", *exact) for path in (model, tiny.rand())]
    assert answers[0].returncode == 0 and answers[0].stdout == answers[1].stdout != ""
