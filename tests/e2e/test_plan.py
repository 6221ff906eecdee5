"""masu plan as a user runs it: the table, --json, costs, and errors of one line."""
import json
import os
import subprocess

import pytest

LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
            "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B))
    return path


def plan(*arguments):
    return subprocess.run([os.environ["MASU_BINARY"], "plan", *map(str, arguments)], capture_output=True, text=True,
                          timeout=60)


def plan_json(*arguments):
    done = plan(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json(config):
    answer = plan_json(config, "--device", "h100", "--context", "8K")
    rows = {(row["kv_cache_dtype"], row["kv_scale"]): row for row in answer["plans"]}
    assert rows["bfloat16", "none"]["kv_bytes_per_token"] == 131072
    assert rows["fp8", "unit"]["kv_bytes_per_token"] == 65536
    assert rows["int8", "dynamic"]["kv_bytes_per_token"] == 2 * 32 * 8 * (128 + 2)
    assert [key for key, row in rows.items() if row["recommended"]] == [("int8", "dynamic")]
    for row in answer["plans"]:
        assert row["checkpoint_bytes"] == 16_060_522_496
        if "int4" in row["kv_encoding"]:  # the first page of each request is wider
            assert 0.98 * row["kv_tokens"] < 8192 * row["max_concurrent_requests"] <= row["kv_tokens"]
        else:
            assert row["max_concurrent_requests"] == row["kv_tokens"] // 8192


def test_memory_of_a_directory_and_this_machine(config):
    by_size = plan_json(config.parent, "--memory", "141GB", "--kv-cache-dtype", "fp8", "--kv-scale", "unit")
    assert by_size["memory_bytes"] == 141_000_000_000 and len(by_size["plans"]) == 1
    assert plan_json(config)["memory_bytes"] > 0


def test_gguf(tiny):
    answer = plan_json(tiny.rand(), "--memory", "8GiB")
    assert answer["architecture"] == "llama" and answer["plans"][0]["kv_tokens"] > 0


def test_table_and_costs(config, tmp_path):
    done = plan(config, "--device", "h100", "--weights", "bf16,fp8", "--price-per-hour", "4.0", "--throughput", "2000")
    assert done.returncode == 0, done.stderr
    for text in ("weights per rank", "KV tokens", "recommended", "Cost per million tokens", "0.556"):
        assert text in done.stdout
    measured = tmp_path / "measured.jsonl"
    measured.write_text('{"kv_cache_dtype": "bfloat16", "weights": "checkpoint", "concurrency": 2, "tokens_per_second": 900}\n'
                        '{"kv_cache_dtype": "fp8", "weights": "checkpoint", "concurrency": 4, "tokens_per_second": 1500}\n')
    rows = plan_json(config, "--device", "h100", "--kv-cache-dtype", "bfloat16,fp8", "--price-per-hour", 4,
                     "--throughput", measured)["plans"]
    assert rows[1]["cost"]["relative_to_baseline"] == pytest.approx(900 / 1500)


@pytest.mark.parametrize("arguments, words", [
    (["--device", "h300"], ["h300", "h200"]),
    (["--memory", "0"], ["--memory is 0"]),
    (["--memory", "lots"], ["--memory", "lots"]),
    (["--memory", "999999999999TB"], ["--memory"]),
    (["--tp", "3"], ["--tp 3", "use one of"]),
    (["--tp", "-1"], ["--tp"]),
    (["--weights", "int3"], ["int3", "int4-g32"]),
    (["--weights", "fp8-experts"], ["no routed experts"]),
    (["--kv-cache-dtype", "int9"], ["int9"]),
    (["--kv-scale", "checkpoint"], ["no K/V scales"]),
    (["--context", "many"], ["--context"]),
    (["--overhead", "x"], ["--overhead"]),
    (["--block-size", "7"], ["--block-size 7"]),
    (["--without", "soul"], ["soul", "vision-tower"]),
    (["--throughput", "100"], ["--price-per-hour"]),
    (["--price-per-hour", "1", "--throughput", "/nowhere"], ["/nowhere"]),
    (["--frobnicate"], ["--frobnicate"]),
])
def test_bad_options_give_one_line(config, arguments, words):
    done = plan(config, *arguments)
    assert done.returncode in (1, 2) and not done.stdout
    assert done.stderr.startswith("masu: ") and done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("text", ["", "not json", "[]", "{}", '{"model_type": "mamba9"}', "[" * 100_000,
                                  json.dumps(LLAMA_8B | {"hidden_size": -1}), json.dumps(LLAMA_8B | {"vocab_size": 10**30}),
                                  json.dumps(LLAMA_8B | {"num_hidden_layers": "32"})])
def test_bad_files_give_one_line(config, text):
    config.write_text(text)
    done = plan(config, "--device", "h100")
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith("masu: ") and done.stderr.count("\n") == 1, done.stderr
    assert str(config) in done.stderr
