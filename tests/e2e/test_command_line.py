"""The command line: help, wrong flags and values, files that are no model, old flags of vLLM."""
import os
import re
import socket
import subprocess

import pytest
from serving import BINARY

COMMANDS = [[], ["serve"], ["generate"], ["chat"], ["info"], ["eval"], ["eval", "kl"], ["tokenize"], ["detokenize"], ["template"], ["plan"], ["bench"], ["bench", "kernel"],
            ["bench", "engine"], ["bench", "integrity"], ["version"]]


def run(*arguments, text="", env=None, seconds=60):
    return subprocess.run([str(BINARY), *map(str, arguments)], input=text, capture_output=True, text=True, timeout=seconds,
                          check=False, env=os.environ | (env or {}))


def check_refusal(result, *named, status=None):
    """An exit code for failure, one line on standard error that names these things, and no sign of a crash."""
    assert result.returncode in ([1, 2] if status is None else [status]), (result.returncode, result.stderr)
    lines = [line for line in result.stderr.strip().splitlines() if "listening on" not in line and " % " not in line]
    assert len(lines) == 1, result.stderr
    assert not re.search(r"terminate called|Aborted|core dumped|Sanitizer|CHECK|\bwhat\(\)|\.cc:\d+", result.stderr)
    for name in named:
        assert re.search(re.escape(str(name)), lines[0], re.IGNORECASE), f"{name!r} is not in: {lines[0]}"
    return lines[0]


# --- help ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(command, flag):
    result = run(*command, flag)
    assert result.returncode == 0 and result.stderr == ""
    assert "Usage:" in result.stdout and "--help" in result.stdout
    # Every option says what it does: text follows its name, on its line or on the next.
    lines = result.stdout.splitlines()
    for line, following in zip(lines, [*lines[1:], ""]):
        if re.match(r"  -", line):
            says = re.sub(r"^  \S+( (TEXT|UINT|INT|FLOAT|[A-Z]+)\S*)?( \.\.\.)?( REQUIRED)?", "", line).strip()
            assert says or following.startswith(" " * 10), f"no description: {line}"


@pytest.mark.parametrize("command, options", [
    ("serve", """--host --port --api-key --served-model-name --kv-cache-dtype --kv-scale --kv-cache-memory-bytes
     --gpu-memory-utilization --max-model-len --block-size --max-num-seqs --max-num-batched-tokens --scheduling-policy
     --max-num-queued-reqs --max-logprobs --seed --activation-dtype --device --swap-space --metrics-prefix
     --enable-prefix-caching --no-enable-prefix-caching --enable-fair-share --no-enable-fair-share --max-kv-share-per-key
     --request-timeout --shutdown-timeout --quantization-param-path --kv-cache-dtype-k --kv-cache-dtype-v
     --kv-cache-dtype-skip-layers --kv-cache-dtype-choices --kv-policy --drift-sample --retry-on-degeneration --kv-guard --no-kv-conditioning"""),
    ("generate", """--prompt --max-tokens --temperature --kv-cache-dtype --activation-dtype --kv-cache-dtype-k --kv-cache-dtype-v
     --kv-cache-dtype-skip-layers --kv-scale"""), ("plan", "--kv-cache-dtype --kv-cache-dtype-skip-layers --kv-scale"),
    ("chat", "--max-tokens --temperature --system"), ("info", "--why --url --kv --quantization-param-path"),
    ("eval", """--kv-cache-dtype --baseline --data --file --limit --lengths --seed --text --tokens --window --json --html
     --quantization-param-path --activation-dtype --block-size --max-model-len --kv-integrity --fault-injection --threads"""),
    ("bench kernel", "--op --format --kv --isa --shape --rows --context --block-size --activation-dtype --threads --seconds --json"),
    ("bench engine", """--kv-cache-dtype --concurrency --context --block-size --queue --pairs --prefill-pairs --fill --trace
     --activation-dtype --threads --kv-cache-memory-bytes --max-num-batched-tokens --json"""),
    ("bench integrity", "--activation-dtype --threads --pairs --json")])
def test_help_is_complete(command, options):
    text = run(*command.split(), "--help").stdout
    assert [option for option in options.split() if not re.search(rf"(^|[\s,]){option}\b", text)] == []


def test_utilization_says_what_to_choose():
    text = run("serve", "--help").stdout
    line = next(line for line in text.splitlines() if "0.60-0.80" in line)
    assert "0.90-0.95" in line and "=0.9" in text


def test_version(rand_server):
    result = run("version")
    assert result.returncode == 0 and re.search(r"\d+\.\d+\.\d+", result.stdout)
    assert rand_server.get("/version").json["version"] in result.stdout


# --- wrong flags and values ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("command, wrong, nearest", [
    (["serve", "x.gguf"], "--kv-cache-dtyp", "--kv-cache-dtype"), (["serve", "x.gguf"], "--max-modellen", "--max-model-len"),
    (["serve", "x.gguf"], "--prot", "--port"), (["serve", "x.gguf"], "--gpu-memory-utilisation", "--gpu-memory-utilization"),
    (["generate", "x.gguf", "-p", "x"], "--max-token", "--max-tokens"), (["chat", "x.gguf"], "--sytem", "--system"),
    (["info", "x.gguf"], "--whyy", "--why"), (["tokenize", "x.gguf"], "--piece", "--pieces"), (["version"], "--halp", "--help"),
    ([], "serv", "serve"), ([], "generat", "generate"), ([], "detoknize", "detokenize"), (["eval"], "kll", "kl"),
    (["eval", "kl", "x.gguf", "--text", "x"], "--token", "--tokens"), (["serve"], "--prot=5", "--port")], ids=str)
def test_unknown_names_the_nearest(command, wrong, nearest):
    line = check_refusal(run(*command, wrong), wrong.partition("=")[0], nearest, status=2)
    assert f"(see {' '.join(['masu', *command[:1]])} --help)" in line


def test_missing_arguments():
    check_refusal(run("serve"), "MODEL", status=2)
    check_refusal(run("generate", "x.gguf"), "prompt", status=2)
    check_refusal(run(), "--help", status=2)
    check_refusal(run("serve", "x.gguf", "--port"), "--port", status=2)


BAD_VALUES = [
    ("--port", "-1"), ("--port", "65536"), ("--port", "http"), ("--kv-cache-dtype", "fp7"), ("--kv-cache-dtype", ""),
    ("--kv-scale", "static"), ("--kv-cache-memory-bytes", "lots"), ("--kv-cache-memory-bytes", "-1"),
    ("--kv-cache-memory-bytes", "0"), ("--kv-cache-memory-bytes", "1XB"), ("--kv-cache-memory-bytes", "99999999999GiB"),
    ("--gpu-memory-utilization", "0"), ("--gpu-memory-utilization", "1.5"), ("--gpu-memory-utilization", "-0.5"),
    ("--gpu-memory-utilization", "nan"), ("--gpu-memory-utilization", "most"), ("--max-model-len", "0"),
    ("--max-model-len", "-5"), ("--max-model-len", "long"), ("--max-model-len", "1e9"), ("--block-size", "0"),
    ("--block-size", "17"), ("--block-size", "256"), ("--block-size", "big"), ("--max-num-seqs", "0"),
    ("--max-num-seqs", "-1"), ("--max-num-seqs", "x"), ("--max-num-batched-tokens", "0"), ("--max-num-batched-tokens", "x"),
    ("--scheduling-policy", "lifo"), ("--max-num-queued-reqs", "-1"), ("--max-logprobs", "x"), ("--seed", "x"),
    ("--activation-dtype", "fp64"), ("--threads", "-1"), ("--threads", "x"), ("--threads", "1000000"), ("--device", "tpu"),
    ("--device", "cuda"), ("--metrics-prefix", "mine"), ("--host", "not a host"), ("--host", "300.1.1.1"),
    ("--max-body-bytes", "x"), ("--sse-keep-alive-interval", "x"), ("--sse-keep-alive-interval", "-1"),
    ("--long-prefill-token-threshold", "x"), ("--max-model-len", "18014398509481985K"), ("--api-key", ""),
    ("--max-kv-share-per-key", "0"), ("--max-kv-share-per-key", "2"), ("--max-kv-share-per-key", "0.0001"),
    ("--request-timeout", "0"), ("--request-timeout", "-1"), ("--request-timeout", "soon"), ("--shutdown-timeout", "-1"),
    ("--shutdown-timeout", "x"), ("--quantization-param-path", ""), ("--quantization-param-path", "/nowhere/scales.json"),
    ("--kv-cache-dtype-k", "fp7"), ("--kv-cache-dtype-v", ""), ("--kv-cache-dtype-skip-layers", "99"),
    ("--kv-cache-dtype-skip-layers", "some"), ("--kv-cache-dtype-choices", "int9"), ("--kv-cache-dtype-choices", "none,int8"),
    ("--drift-sample", "2"), ("--drift-sample", "-1"), ("--drift-sample", "nan"), ("--kv-policy", ""), ("--kv-policy", "absent.json"),
]


@pytest.mark.parametrize("flag, value", BAD_VALUES, ids=lambda value: value)
def test_bad_values(tiny, flag, value):
    """Refused at start with one line that names the flag, or the value where the flag is plain."""
    flags = [f"{flag}={value}"] + ([] if flag == "--port" else ["--port", "0"])
    flags += [] if "memory" in flag else ["--kv-cache-memory-bytes", "1MiB"]
    line = check_refusal(run("serve", tiny.rand(), *flags))
    assert flag in line or flag.strip("-").replace("-", "_") in line or (value and value in line), line


@pytest.mark.parametrize("value, tokens", [("1k", 1000), ("1K", 1024), ("512", 512), ("auto", 2048), ("-1", 2048)])
def test_lengths(tiny, serve, value, tokens):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "1MiB", f"--max-model-len={value}")
    assert server.get("/v1/models").json["data"][0]["max_model_len"] == tokens


@pytest.mark.parametrize("value, size", [("1MiB", 1 << 20), ("2097152", 2 << 20), ("1MB", 10**6)])
def test_sizes(tiny, serve, value, size):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", value)
    assert size * 0.95 <= server.metric("kv_arena_bytes") <= size


# --- models that are none ----------------------------------------------------------------------------------------------------

def bad_files(tiny, folder):
    good = tiny.rand().read_bytes()
    files = {"empty": b"", "text": b"hello, I am no model\n" * 100, "magic only": b"GGUF", "half a header": good[:20],
             "truncated": good[:len(good) * 2 // 3], "one byte short": good[:-1], "half of the keys": good[:2000],
             "old version": good[:4] + b"\x01\0\0\0" + good[8:], "future version": good[:4] + b"\x63\0\0\0" + good[8:],
             "too many tensors": good[:8] + b"\xff" * 8 + good[16:], "too many keys": good[:16] + b"\xff" * 8 + good[24:],
             "other architecture": good.replace(b"llama", b"lamma")}
    for name, data in files.items():
        path = folder / f"{name.replace(' ', '_')}.gguf"
        path.write_bytes(data)
        yield name, path
    yield "missing", folder / "missing.gguf"
    (folder / "folder.gguf").mkdir()
    yield "folder", folder / "folder.gguf"


def test_files_that_are_no_model(tiny, tmp_path):
    """Each command: one line with the file and the cause."""
    count = 0
    for _, path in bad_files(tiny, tmp_path):
        for command in (["serve", path, "--port", "0"], ["generate", path, "-p", "x"], ["info", path]):
            check_refusal(run(*command), path.name, status=1)
            count += 1
        for command in (["tokenize", path], ["detokenize", path], ["chat", path]):
            if path.stem in ("truncated", "one_byte_short", "other_architecture"):
                continue  # the vocabulary is whole, so these may work
            check_refusal(run(*command, text="1 2"), path.name, status=1)
    assert count == 42


def test_no_right_to_read(tiny, tmp_path):
    if os.geteuid() == 0:
        path = "/proc/self/mem"  # root may read every file but not this one
    else:
        path = tmp_path / "closed.gguf"
        path.write_bytes(tiny.rand().read_bytes())
        path.chmod(0)
    check_refusal(run("serve", path, "--port", "0"), os.path.basename(path), status=1)


def test_port_in_use(tiny):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = check_refusal(run("serve", tiny.rand(), "--port", port, "--kv-cache-memory-bytes", "1MiB"), port, status=1)
        assert "--port" in line, "the remedy is named"


# --- flags of vLLM -----------------------------------------------------------------------------------------------------------

VLLM_FLAGS = [["--calculate-kv-scales"], ["--disable-log-requests"], ["--guided-decoding-backend", "x"],
              ["--use-v2-block-manager"],
              ["--enable-chunked-prefill"], ["--enforce-eager"],
              ["--trust-remote-code"], ["--dtype", "auto"], ["--dtype", "bfloat16"], ["--disable-log-stats"],
              ["--uvicorn-log-level", "info"], ["--disable-uvicorn-access-log"]]


def test_old_flags_warn(tiny, serve):
    """All at once: the server starts, and one warning each names the flag."""
    seen = set()
    unique = [flag for flag in VLLM_FLAGS if not (flag[0] in seen or seen.add(flag[0]))]
    flags = [part for flag in unique for part in flag]
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "1MiB", *flags)
    assert server.complete("hello", max_tokens=1)["usage"]["completion_tokens"] == 1
    silent = [flag[0] for flag in unique if not re.search(rf"warn.*{flag[0]}\b", server.log)]
    assert silent == []


@pytest.mark.parametrize("flags", [["--kv_cache_dtype", "int8"], ["--kv_cache_dtype=int8"], ["--max_num_seqs", "7"],
                                   ["--kv_cache_memory_bytes", "2MiB"], ["--device-memory-utilization", "0.5"],
                                   ["--served_model_name", "under_score"]], ids=" ".join)
def test_underscores(tiny, serve, flags):
    server = serve(tiny.rand(), *(["--kv-cache-memory-bytes", "1MiB"] if "kv_cache_memory_bytes" not in flags[0] else []), *flags)
    if "dtype" in flags[0]:
        assert server.cache()["cache_dtype"] == "int8"
    if "bytes" in flags[0]:
        assert server.metric("kv_arena_bytes") == 2 << 20
    if "name" in flags[0]:
        assert server.get("/v1/models").json["data"][0]["id"] == "under_score"
    if "utilization" in flags[0]:
        assert server.cache()["gpu_memory_utilization"] == "0.5"


def test_key_from_the_environment(tiny, serve):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "1MiB", env={"MASU_API_KEY": "secret"})
    assert server.get("/v1/models").status == 401
    assert server.get("/v1/models", headers={"Authorization": "Bearer secret"}).status == 200
    assert "secret" not in server.log


# --- the other commands --------------------------------------------------------------------------------------------------------

def test_tokenize_and_back(rand_server, smollm2_path):
    for text in ("hello world", "日本語 naïve 😀\n", "  two  spaces", "<|im_start|>"):
        ids = run("tokenize", smollm2_path, "--no-special", text=text)
        assert ids.returncode == 0 and re.fullmatch(r"\d+( \d+)*\n", ids.stdout)
        back = run("detokenize", smollm2_path, text=ids.stdout)
        assert back.returncode == 0 and back.stdout.rstrip("\n") == text.rstrip("\n")
    check_refusal(run("detokenize", smollm2_path, text="12 x"), "x", status=1)
    check_refusal(run("detokenize", smollm2_path, text="999999999"), "999999999", status=1)
    tokens = rand_server.ok("/tokenize", {"prompt": "hello world"})
    assert tokens["count"] == 2 and rand_server.ok("/detokenize", {"tokens": tokens["tokens"]})["prompt"] == "hello world"


def test_info(smollm2_path, rand_server):
    result = run("info", smollm2_path)
    assert result.returncode == 0 and "30" in result.stdout and "49152" in result.stdout.replace(",", "")
    why = run("info", "--why", "--url", rand_server.url)
    assert why.returncode == 0 and why.stdout.strip()
    check_refusal(run("info", "--why", "--url", "http://127.0.0.1:9"), "127.0.0.1:9", status=1)
    check_refusal(run("info"), "MODEL")


def test_generate_reads_standard_input(tiny):
    model = tiny.chain("greek", ["alpha", " be", "ta ga", "mma del", "ta"])
    for arguments in (["-p", "hello"], ["-p", "-"]):
        result = run("generate", model, *arguments, "--kv-cache-memory-bytes", "1MiB", text="hello")
        assert result.returncode == 0 and result.stdout == "alpha beta gamma delta\n"
    check_refusal(run("generate", model, "-p", "a" * 5000, "--kv-cache-memory-bytes", "1MiB", "--max-model-len", "64"), "64", status=1)
    check_refusal(run("generate", model, "-p", "x", "--temperature", "-1", "--kv-cache-memory-bytes", "1MiB"), "temperature")


def test_chat(tiny):
    model = tiny.chain("greek", ["alpha", " be", "ta ga", "mma del", "ta"])
    result = run("chat", model, "--kv-cache-memory-bytes", "1MiB", text="hello\nagain\n")
    assert result.returncode == 0 and result.stdout.count("alpha beta gamma delta") == 2


def test_eval_kl(tiny, tmp_path):
    """Its help says how to call it, and a tiny text gives a table with every encoding asked for."""
    text = tmp_path / "text.txt"
    text.write_text("hello world, hello there. " * 40)
    result = run("eval", "kl", tiny.rand(), "--text", text, "--tokens", "128", "--kv-cache-dtype", "int8,fp8", seconds=120)
    assert result.returncode == 0, result.stderr
    assert "int8" in result.stdout and "fp8" in result.stdout
    check_refusal(run("eval", "kl", tiny.rand(), "--text", tmp_path / "absent.txt"), "absent.txt")
