"""masu bench kernel, engine and integrity: what they report, and that arms alternate. How fast this machine is does not matter here."""
import pytest
from serving import strict_json
from test_command_line import check_refusal, run

SUMMARY = {"count", "min", "p25", "median", "p75", "max"}
RATIO = {"pairs", "ratio", "low", "high"}
WORK = {"weight_bytes", "cache_bytes", "activation_bytes", "operations"}
ROOFLINE = {"cpu", "isa", "num_threads", "peak", "read_bytes_per_second", "read_bytes_per_second_one_thread",
            "operations_per_second", "operations_per_second_one_thread", "read_buffer_bytes"}
ARM = {"arm", "label", "model", "kv_cache_dtype", "queue"}
DECODE = ARM | {"resident", "waiting", "preemptions", "tokens_per_second", "step_seconds", "inter_token_seconds", "ttft_seconds",
                "quiet_samples", "work", "cache_share", "roofline_seconds", "roofline_share", "limit", "ratio", "ratio_quiet",
                "ratio_predicted"}
PAIRS = 4


@pytest.fixture(scope="module")
def engine(smollm2_path, tmp_path_factory):
    """One run over two encodings and two concurrencies: (text, JSON, trace)."""
    folder = tmp_path_factory.mktemp("bench")
    result = run("bench", "engine", "--kv-cache-dtype", "bfloat16,int8", smollm2_path, "--concurrency", "1,2", "--context", 40,
                 "--pairs", PAIRS, "--prefill-pairs", 1, "--kv-cache-memory-bytes", "64MiB", "--max-num-batched-tokens", 64,
                 f"--json={folder / 'report.json'}", "--trace", folder / "trace.json", seconds=900)
    assert result.returncode == 0, result.stderr
    return result.stdout, strict_json((folder / "report.json").read_bytes()), strict_json((folder / "trace.json").read_bytes())


def test_engine_json(engine):
    _, report, _ = engine
    assert report["benchmark"] == "engine" and report["fill"] == "random" and report["kv_cache_memory_bytes"] == 64 << 20
    assert set(report["roofline"]) == ROOFLINE and all(report["roofline"].values())
    assert [arm["kv_cache_dtype"] for arm in report["arms"]] == ["bfloat16", "int8"]
    assert [(cell["concurrency"], cell["context"], cell["block_size"]) for cell in report["cells"]] == [(1, 40, 16), (2, 40, 16)]
    for cell in report["cells"]:
        for arm in cell["arms"]:
            assert set(arm) == DECODE
            assert set(arm["tokens_per_second"]) == set(arm["step_seconds"]) == set(arm["ttft_seconds"]) == SUMMARY
            assert set(arm["ratio"]) == set(arm["ratio_quiet"]) == RATIO and set(arm["work"]) == WORK
            assert set(arm["inter_token_seconds"]) == {"p50", "p95", "p99"}
            assert arm["resident"] == cell["concurrency"] and arm["waiting"] == 0
            assert arm["ratio"]["low"] <= arm["ratio"]["ratio"] <= arm["ratio"]["high"] and arm["ratio"]["pairs"] == PAIRS
            assert arm["limit"] in ("weights", "cache", "arithmetic") and 0 < arm["cache_share"] < 1
        assert cell["arms"][0]["ratio"]["ratio"] == 1 and cell["arms"][0]["ratio_predicted"] == 1
        # int8 with its scales is 34/64 of bfloat16 at head size 64.
        baseline, int8 = (arm["work"]["cache_bytes"] for arm in cell["arms"])
        assert int8 / baseline == pytest.approx(66 / 128)
    assert set(report["pooled"][0]["ratio"]) == RATIO and report["pooled"][0]["ratio"]["pairs"] == 2 * PAIRS
    assert [arm["kv_cache_dtype"] for arm in report["prefill"][0]["arms"]] == ["bfloat16", "int8"]


def test_engine_alternates_its_arms(engine):
    """Each round measures every arm once, and the next one goes the other way: A B B A."""
    for cell in engine[1]["cells"]:
        order = [sample["arm"] for sample in cell["samples"]]
        assert order == [0, 1, 1, 0] * (PAIRS // 2)
        assert all(sample["tokens"] == cell["concurrency"] and sample["seconds"] > 0 for sample in cell["samples"])


def test_engine_text(engine):
    text, _, _ = engine
    assert "decode: 2 requests x 40 tokens, block size 16" in text and "prefill: one prompt of 40 tokens" in text
    assert "random K and V" in text and "baseline" in text


def test_engine_trace(engine):
    """A trace that Chrome and Perfetto read: complete events with each phase, operations within their step."""
    events = engine[2]["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in spans)
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {f"{dtype}: {n} x 40 tokens, block size 16" for dtype in ("bfloat16", "int8") for n in (1, 2)}
    for process in {event["pid"] for event in spans}:
        own = [event for event in spans if event["pid"] == process]
        found = {event["name"] for event in own}
        assert found >= {"step", "schedule", "check", "run", "sample", "commit", "publish", "linear", "attention", "kv_write", "rms_norm",
                         "rope", "silu_mul", "embedding", "row_statistics", "check_page_headers"}
        steps = [(event["ts"], event["ts"] + event["dur"]) for event in own if event["name"] == "step"]
        slack = 0.01  # microseconds, of decimal fractions
        for event in own:
            assert any(begin - slack <= event["ts"] and event["ts"] + event["dur"] <= end + slack for begin, end in steps), event
    assert engine[2]["otherData"]["dropped_spans"] == 0


def test_kernel(tmp_path):
    """--json alone prints JSON and nothing else, with every case of every instruction set that was asked for."""
    result = run("bench", "kernel", "--op", "linear,attention,rms_norm", "--format", "bf16,q4_0", "--kv", "bfloat16,int8", "--shape",
                 "64/128/4/2/32", "--rows", "1,64", "--context", 128, "--seconds", 0, "--json", seconds=300)
    assert result.returncode == 0, result.stderr
    report = strict_json(result.stdout.encode())
    assert report["benchmark"] == "kernel" and report["skipped"] == []
    isas = [roofline["isa"] for roofline in report["rooflines"]]
    assert "scalar" not in isas or len(isas) == 1
    for isa in isas:
        rows = [row for row in report["results"] if row["isa"] == isa]
        # 5 products x 2 formats x 2 heights; attention: one decode each, and at 64 rows a chunk as well; 2 norms.
        assert len(rows) == 20 + 2 + 4 + 2
        for row in rows:
            assert set(row["all"]) == set(row["quiet"]) == set(row["contended"]) == SUMMARY and set(row["work"]) == WORK
            assert row["all"]["count"] == row["quiet"]["count"] + row["contended"]["count"] >= 3
            assert row["limit"] in ("weights", "cache", "activations", "arithmetic")
            assert row["roofline_share"] == pytest.approx(row["roofline_seconds"] / row["seconds"])


def test_integrity(tiny):
    """The figures of a tiny model mean nothing, but each is there, and the exit code says what the report says."""
    result = run("bench", "integrity", tiny.rand("long", context=8192), "--pairs", 5, "--json", seconds=600)
    report = strict_json(result.stdout.encode())
    assert result.returncode == (0 if report["passed"] else 1), result.stderr
    assert [row["requests"] for row in report["steps"]] == [1, 4, 8, None]
    assert [row["ratio"]["pairs"] for row in report["steps"]] == [5, 5, 5, 15]
    # Its heads of 16 values are too small for int4, which is named instead.
    assert [row["kv_cache_dtype"] for row in report["checks"]] == ["bfloat16", "float16", "fp8", "fp8", "fp8_e5m2", "int8", "float32"]
    assert len(report["skipped"]) == 1 and "int4" in report["skipped"][0]
    for row in report["checks"]:
        # All 64 requests decode in every step that counts, and none computes its prompt: 4,096 tokens and up to 16 new ones each.
        assert row["headers"] == 64 * (4096 // 16 + 1) and 0 < row["check_seconds"] < row["step_seconds"]


@pytest.mark.parametrize("arguments, named", [
    (["bench"], ["subcommand"]),
    (["bench", "kernels"], ["kernels", "did you mean kernel"]),
    (["bench", "kernel", "--op", "softmax"], ["softmax"]),
    (["bench", "kernel", "--format", "q3_k"], ["q3_k", "q4_k"]),
    (["bench", "kernel", "--kv", "int7"], ["int7"]),
    (["bench", "kernel", "--shape", "tall"], ["tall", "--shape"]),
    (["bench", "kernel", "--isa", "neon"], ["neon", "this CPU has"]),
    (["bench", "engine"], ["MODEL"]),
    (["bench", "engine", "MODEL", "--paris", "5"], ["--paris", "--pairs"]),
    (["bench", "engine", "MODEL", "--fill", "nothing"], ["nothing"]),
    (["bench", "engine", "MODEL", "--kv-cache-dtype", "bfloat16,int7"], ["int7"]),
    (["bench", "engine", "MODEL", "--context", "100000"], ["--context"]),
    (["bench", "engine", "MODEL", "--block-size", "17"], ["17"]),
    (["bench", "engine", "MODEL", "--trace", "/nowhere/trace.json"], ["/nowhere/trace.json"]),
    (["bench", "engine", "MODEL", "--json=/nowhere/report.json"], ["/nowhere/report.json"]),
    (["bench", "integrity", "/nowhere/model.gguf"], ["/nowhere/model.gguf"])], ids=lambda value: " ".join(map(str, value)))
def test_refusals(arguments, named, tiny):
    model = tiny.rand()
    check_refusal(run(*(model if argument == "MODEL" else argument for argument in arguments)), *named)
