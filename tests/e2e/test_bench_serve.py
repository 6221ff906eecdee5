"""masu bench serve: load on a server that runs, its counts against the server's own, and what happens when there is none."""
import json
import signal
import socket
import subprocess

import pytest
from serving import BINARY, strict_json, wait_until
from test_command_line import check_refusal, run

# What vLLM's files have with --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,99.
KEYS = """date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency duration completed
 failed total_input_tokens total_output_tokens request_throughput request_goodput output_throughput total_token_throughput
 max_output_tokens_per_s max_concurrent_requests""".split() + [
    f"{statistic}_{metric}_ms" for metric in ("ttft", "tpot", "itl", "e2el") for statistic in ("mean", "median", "std", "p50", "p99")]
DETAILS = "input_lens output_lens ttfts itls latencies start_times queue_times generated_texts errors".split()


def bench(server, *arguments, seconds=600):
    result = run("bench", "serve", "--port", server.port, *arguments, "--json", seconds=seconds)
    assert result.returncode == 0, result.stdout + result.stderr
    return strict_json(result.stdout)


def counters(server):
    return {name: server.metric(f"{name}_total") for name in ("prompt_tokens", "generation_tokens", "requests_received")}


def test_counts_and_keys(smollm2):
    """Twenty prompts: the counts are exact, and the server's counters say the same."""
    before = counters(smollm2)
    result = bench(smollm2, "--num-prompts", 20, "--random-input-len", 30, "--random-output-len", 8, "--random-prefix-len", 5,
                   "--max-concurrency", 4, "--ignore-eos", "--metric-percentiles", "50,99", "--save-detailed")
    assert [key for key in [*KEYS, *DETAILS] if key not in result] == []
    assert (result["benchmark"], result["version"]) == ("serve", 1)
    assert (result["completed"], result["failed"], result["num_prompts"]) == (20, 0, 20)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (20 * 35, 20 * 8)
    assert result["input_lens"] == [35] * 20 and result["output_lens"] == [8] * 20 and result["errors"] == [""] * 20
    assert {name: value - before[name] for name, value in counters(smollm2).items()} == {
        "prompt_tokens": 700, "generation_tokens": 160, "requests_received": 20}
    assert result["model_id"] == smollm2.model and result["request_rate"] == "inf" and result["max_concurrency"] == 4
    assert 1 <= result["max_concurrent_requests"] <= 4
    assert result["output_throughput"] == pytest.approx(160 / result["duration"])
    for ttft, itls, latency in zip(result["ttfts"], result["itls"], result["latencies"]):
        assert 0 < ttft <= latency and ttft + sum(itls) <= latency + 1e-6


def test_text_and_files(smollm2, tmp_path):
    """Arrivals at a rate, lengths of ShareGPT, a file of results; and the tables that a terminal gets."""
    result = run("bench", "serve", "--base-url", smollm2.url, "--num-prompts", 4, "--dataset-name", "sharegpt", "--sharegpt-output-len",
                 5, "--request-rate", 20, "--arrival", "fixed", "--goodput", "e2el:600000", "ttft:600000", "--metadata",
                 "kv_cache_dtype=fp8", "run=7", "--save-result", "--result-dir", tmp_path / "new", "--num-warmups", 1, seconds=600)
    assert result.returncode == 0, result.stderr
    assert "20.0 requests/s" in result.stdout and "| e2el" in result.stdout and "goodput" in result.stdout
    [file] = (tmp_path / "new").iterdir()
    assert file.name.startswith(f"openai-20.0qps-{smollm2.model}-")
    saved = strict_json(file.read_text())
    assert saved["completed"] == 4 and saved["kv_cache_dtype"] == "fp8" and saved["run"] == "7"
    assert saved["burstiness"] == "inf" and saved["request_goodput"] == saved["request_throughput"]
    assert saved["duration"] >= 0.2, "the last of four requests is sent after 4/20 s"


def test_shared_prefixes(smollm2):
    hits = smollm2.metric("prefix_cache_hits_total")
    result = bench(smollm2, "--num-prompts", 6, "--dataset-name", "prefix_repetition", "--prefix-repetition-prefix-len", 64,
                   "--prefix-repetition-suffix-len", 8, "--prefix-repetition-num-prefixes", 2, "--prefix-repetition-output-len", 4,
                   "--max-concurrency", 1, "--seed", 11, "--ignore-eos")
    assert (result["completed"], result["total_input_tokens"], result["total_output_tokens"]) == (6, 6 * 72, 24)
    assert smollm2.metric("prefix_cache_hits_total") - hits == 4 * 64


def test_chats(smollm2, smollm2_path, tmp_path):
    """Prompts from a file, and random ones that a tokenizer turns into text."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text, "output_tokens": 6}) + "\n" for text in ("Hello!", "Und nun ein ß.")))
    result = bench(smollm2, "--backend", "openai-chat", "--dataset-name", "custom", "--dataset-path", prompts, "--num-prompts", 2,
                   "--extra-body", '{"temperature": 0, "ignore_eos": true}', "--save-detailed", "--disable-shuffle")
    assert result["output_lens"] == [6, 6] and result["endpoint_type"] == "openai-chat"
    texts = [smollm2.chat(text, max_tokens=6, ignore_eos=True)["choices"][0]["message"]["content"] for text in ("Hello!", "Und nun ein ß.")]
    assert result["generated_texts"] == texts
    chat = ["--endpoint", "/v1/chat/completions", "--num-prompts", 2, "--random-input-len", 20, "--random-output-len", 3]
    assert bench(smollm2, *chat, "--ignore-eos", "--tokenizer", smollm2_path)["total_output_tokens"] == 6
    check_refusal(run("bench", "serve", "--port", smollm2.port, *chat), "--tokenizer", status=1)


def test_many_connections(rand_server):
    """Five hundred at once."""
    result = bench(rand_server, "--num-prompts", 500, "--random-vocab-size", 512, "--random-input-len", 4, "--random-output-len", 3,
                   "--ignore-eos")
    assert (result["completed"], result["total_output_tokens"]) == (500, 1500)
    assert result["max_concurrent_requests"] > 100


def test_interrupt(rand_server):
    """Ctrl-C: what was measured so far is printed."""
    before = rand_server.metric("requests_received_total")
    command = [BINARY, "bench", "serve", "--port", rand_server.port, "--num-prompts", 100000, "--request-rate", 20,
               "--random-vocab-size", 512, "--random-input-len", 4, "--random-output-len", 2]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: rand_server.metric("requests_received_total") - before >= 3 and rand_server.is_idle(), 120, "some are answered")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "interrupted: " in output and "of 100000 requests" in output and "| ttft" in output


# --- what goes wrong -----------------------------------------------------------------------------------------------------

def test_no_server():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening
        port = unused.getsockname()[1]
        check_refusal(run("bench", "serve", "--port", port, "--num-prompts", 5), f"127.0.0.1:{port}", "is a server running", status=1)
    check_refusal(run("bench", "serve", "--host", "no.such.host.invalid"), "no.such.host.invalid", "--base-url", status=1)


def test_all_requests_fail(rand_server):
    """Each error is said once, with its number; the exit status is 1."""
    result = run("bench", "serve", "--port", rand_server.port, "--num-prompts", 7, "--random-input-len", 4, "--random-vocab-size",
                 "100000", "--seed", 3)
    assert result.returncode == 1
    failures = [line for line in result.stdout.splitlines() if line.startswith("failed ")]
    assert sum(int(line.split()[1]) for line in failures) == 7 and all("HTTP 400" in line for line in failures)


def test_keys_are_sent(serve, tiny):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "8MiB", "--api-key", "secret")
    arguments = ["bench", "serve", "--port", server.port, "--num-prompts", 2, "--random-vocab-size", 512, "--random-input-len", 3,
                 "--random-output-len", 2]
    check_refusal(run(*arguments), "401", "OPENAI_API_KEY", status=1)
    assert run(*arguments, "--api-key", "secret").returncode == 0
    assert run(*arguments, env={"OPENAI_API_KEY": "secret"}).returncode == 0
    check_refusal(run(*arguments, "--api-key", "wrong", env={"OPENAI_API_KEY": "secret"}), "401", status=1)


@pytest.mark.parametrize("arguments, named", [
    (["--request-rate", "0"], ["--request-rate"]), (["--request-rate", "fast"], ["--request-rate"]),
    (["--goodput", "ttft"], ["--goodput", "ttft:500"]), (["--goodput", "itl:5"], ["itl", "tpot"]),
    (["--metadata", "novalue"], ["--metadata"]), (["--endpoint", "/v1/embeddings"], ["/v1/completions"]),
    (["--dataset-name", "hf"], ["--dataset-name"]), (["--num-promts", "3"], ["--num-prompts"]),
    (["--arrival", "fixed", "--burstiness", "2"], ["--burstiness"]), (["--percentile-metrics", "ttft,x"], ["--percentile-metrics"])])
def test_wrong_flags(arguments, named):
    check_refusal(run("bench", "serve", *arguments), *named, status=2)


@pytest.mark.parametrize("arguments, named", [
    (["--base-url", "https://127.0.0.1"], ["no https"]), (["--base-url", "127.0.0.1:8000"], ["http://127.0.0.1:8000"]),
    (["--dataset-name", "custom"], ["--dataset-path"]), (["--dataset-name", "custom", "--dataset-path", "/nowhere"], ["/nowhere"]),
    (["--tokenizer", "/nowhere"], ["/nowhere"])])
def test_wrong_values(arguments, named):
    check_refusal(run("bench", "serve", *arguments), *named, status=1)
