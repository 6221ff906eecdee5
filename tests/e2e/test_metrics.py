"""/metrics: bug reports B701 (figures that add up) and B704 (text that parses, names that are documented)."""
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import ROOT, Server, abort_socket, in_parallel, read_chunks, wait_until

PROMPT = "hello world"


@pytest.fixture(scope="module")
def loop_model(tiny):
    return tiny.chain("endless", ["alpha", " be", "ta ga", "mma del", "ta"], loop_to=0, context=131072)


def parse(text):
    """Families by name, from a parser that is stricter than Prometheus: one HELP and TYPE each, counters in _total."""
    assert text.endswith("\n")
    names = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    helps = re.findall(r"^# HELP (\S+) .+$", text, re.MULTILINE)
    assert len(set(names)) == len(names) and sorted(name for name, _ in names) == sorted(helps)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in names if name != "masu:x")
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families) == len(names)
    seen = set()
    for family in families:
        assert family.samples and family.documentation and family.type in ("counter", "gauge", "histogram")
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in seen, f"repeated sample {key}"
            seen.add(key)
            assert "model_name" in sample.labels and sample.labels["engine"] == "0"
        if family.type == "histogram":
            check_histogram(family)
    return {family.name: family for family in families}


def check_histogram(family):
    buckets = [(float(s.labels["le"]), s.value) for s in family.samples if s.name.endswith("_bucket")]
    count, = (s.value for s in family.samples if s.name.endswith("_count"))
    total, = (s.value for s in family.samples if s.name.endswith("_sum"))
    assert buckets == sorted(buckets) and [value for _, value in buckets] == sorted(value for _, value in buckets)
    assert buckets[-1] == (float("inf"), count) and (total > 0) == (count > 0)


def documented_names():
    """Names in the first column of the tables of docs/metrics.md, and whether vLLM has them too."""
    text = (ROOT / "docs/metrics.md").read_text()
    names = {}
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) >= 4 and "`" in cells[1]:
            for name in re.findall(r"`(\w+)[^`]*`", cells[1]):
                names[name] = "`masu:` only" not in line
    return names


def exposed_names(text, prefix):
    return set(re.findall(rf"^# TYPE {prefix}:(\S+) ", text, re.MULTILINE))


@pytest.mark.parametrize("prefix", ["both", "native", "vllm"])
def test_names_are_those_of_the_documentation(tiny, serve, prefix):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "1MiB", "--metrics-prefix", prefix)
    text = server.get("/metrics").body
    names = documented_names()
    assert len(names) > 20 and "num_requests_running" in names
    assert exposed_names(text, "masu") == (set() if prefix == "vllm" else set(names) | old_names())
    both = {name for name, is_shared in names.items() if is_shared} | old_names()
    assert exposed_names(text, "vllm") == (set() if prefix == "native" else both)


def old_names():
    """Named in brackets in the table."""
    return {"gpu_cache_usage_perc"}


def test_vllm_dashboards_find_their_names(rand_server):
    text = rand_server.get("/metrics").body
    names = exposed_names(text, "vllm")
    assert names >= {
        "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "gpu_cache_usage_perc", "cache_config_info",
        "prompt_tokens_total", "generation_tokens_total", "request_success_total", "num_preemptions_total",
        "time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_prompt_tokens",
        "request_generation_tokens", "request_params_n", "request_params_max_tokens"}
    buckets = {name: [le for le in re.findall(rf'^vllm:{name}_bucket{{.*le="([^"]+)"', text, re.MULTILINE)]
               for name in ("e2e_request_latency_seconds", "time_to_first_token_seconds", "inter_token_latency_seconds")}
    assert list(map(float, buckets["e2e_request_latency_seconds"][:5])) == [0.3, 0.5, 0.8, 1, 1.5]
    assert list(map(float, buckets["time_to_first_token_seconds"][:4])) == [0.001, 0.005, 0.01, 0.02]
    assert list(map(float, buckets["inter_token_latency_seconds"][:4])) == [0.01, 0.025, 0.05, 0.075]


def test_fresh_loaded_and_idle(loop_model, serve):
    server = serve(loop_model, "--kv-cache-memory-bytes", "64MiB")
    answer = server.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    fresh = parse(answer.body)
    connections = [server.raw("/v1/completions", {"prompt": PROMPT, "max_tokens": 100000}) for _ in range(8)]
    wait_until(lambda: server.metric("num_requests_running") == 8, 10, "8 run")
    loaded = parse(server.get("/metrics").body)
    assert loaded.keys() == fresh.keys()
    assert loaded["masu:kv_cache_usage_perc"].samples[0].value > 0
    for connection in connections:
        connection.close()
    wait_until(server.is_idle, 2, "idle")
    idle, later = parse(server.get("/metrics").body), parse(server.get("/metrics").body)
    assert idle.keys() == fresh.keys()
    assert [f.samples for f in idle.values()] == [f.samples for f in later.values()], "nothing moves while nothing happens"


@pytest.mark.parametrize("name", ['say "hello"', "back\\slash", "two\nlines", "枡 modèle", '\\"\n\\n', "tab\t{le=\"1\"} 5"])
def test_strange_model_names(tiny, serve, name):
    """--served-model-name: escaped in labels, and the name that requests and answers use."""
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "1MiB", "--served-model-name", name)
    families = parse(server.get("/metrics").body)
    assert {sample.labels["model_name"] for family in families.values() for sample in family.samples} == {name}
    assert server.get("/v1/models").json["data"][0]["id"] == name
    assert server.complete(PROMPT, model=name, max_tokens=1)["model"] == name
    assert server.stream_complete(PROMPT, model=name, max_tokens=1).chunks[0]["model"] == name
    assert server.post("/v1/completions", {"prompt": PROMPT, "model": "rand"}).status == 404


def test_several_model_names(tiny, serve):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "1MiB", "--served-model-name", "first", "second")
    assert [entry["id"] for entry in server.get("/v1/models").json["data"]] == ["first", "second"]
    for name in ("first", "second"):
        assert server.complete(PROMPT, model=name, max_tokens=1)["model"] == "first"
    assert {sample.labels["model_name"] for family in parse(server.get("/metrics").body).values()
            for sample in family.samples} == {"first"}


NAMES = ["requests_received_total", "requests_aborted_total", "requests_failed_total", "requests_rejected_total",
         "requests_in_flight", "time_to_first_token_seconds_count", "e2e_request_latency_seconds_count",
         "request_prompt_tokens_count", "request_prompt_tokens_sum", "request_generation_tokens_count",
         "request_generation_tokens_sum", "request_params_n_count", "request_params_n_sum",
         "request_params_max_tokens_count", "request_time_per_output_token_seconds_count", "num_preemptions_total",
         "engine_requests_received_total", "engine_requests_finished_total", "engine_requests_aborted_total",
         "engine_requests_failed_total", "prompt_tokens_total", "generation_tokens_total"]


def scrape(server, prefix="masu"):
    values = {}
    for family in text_string_to_metric_families(server.get("/metrics").body):
        for sample in family.samples:
            name = sample.name.removeprefix(f"{prefix}:")
            if name in NAMES:
                values[name] = sample.value
            elif name == "request_success_total":
                values[sample.labels["finished_reason"]] = sample.value
    return values


def test_figures_add_up(loop_model, serve):
    """B701: 100 requests, 60 answered (some with n=2, some preempted), 20 that left before their first token, 10 after
    it, 10 refused. Each is counted once, in its place."""
    probe = serve(loop_model, "--kv-cache-memory-bytes", "1MiB")
    size = int(probe.metric("kv_bytes_per_token")) * 16 * 290
    server = serve(loop_model, "--kv-cache-memory-bytes", size, "--max-num-seqs", "10", "--max-num-queued-reqs", "200")
    before = scrape(server)
    assert not any(before.values())
    endless = {"prompt": PROMPT, "max_tokens": 4500, "stream": True, "temperature": 0}

    # 10 run, read some tokens and will leave; 20 wait behind them and leave before they get any.
    running = in_parallel(lambda _: server.raw("/v1/completions", endless), range(10))
    for connection in running:
        read_chunks(connection, 2)
    waiting = in_parallel(lambda i: server.raw("/v1/completions", endless | {"stream": i % 2 == 0}), range(20))
    wait_until(lambda: server.metric("num_requests_waiting") >= 20, 10, "20 wait")
    for i, connection in enumerate(waiting):
        (abort_socket if i % 3 else lambda c: c.close())(connection)
    wait_until(lambda: server.metric("requests_aborted_total") == 20, 5, "the 20 are gone")
    during = scrape(server)
    assert during["time_to_first_token_seconds_count"] == 10 and during["requests_in_flight"] == 10
    assert during["requests_received_total"] == 30
    for connection in running:
        connection.close()
    wait_until(server.is_idle, 5, "idle")

    # 60 answers: 30 end with stop, 30 with length, 20 of them with n=2; long enough to be preempted.
    def answer(i):
        # Salts: equal answers would share their pages, and nobody would be preempted.
        fields = {"max_tokens": 800, "n": 2 if i % 3 == 0 else 1, "cache_salt": str(i)} | ({"stop": ["delta"], "min_tokens": 700} if i % 2 else {})
        if i % 4 < 2:
            return server.complete(PROMPT, **fields)["usage"]
        return server.stream_complete(PROMPT, **fields, stream_options={"include_usage": True}).chunks[-1]["usage"]
    usages = in_parallel(answer, range(60))
    refused = [{"max_tokens": -1}, {"prompt": ""}, {"n": 0}, {"temperature": -1}, {"model": "gpt-9"}, {"guided_json": {}},
               {"prompt": [1] * 200000}, {"stream": 5}, {"logprobs": 99}, {"prompt": None}]
    for fields in refused:
        assert server.post("/v1/completions", {"prompt": PROMPT} | fields).status in (400, 404)

    wait_until(server.is_idle, 5, "idle")
    after = scrape(server)
    assert after["num_preemptions_total"] > 0, "some were preempted"
    assert after["requests_received_total"] == 100
    assert (after["stop"], after["length"]) == (30, 30)
    assert after["requests_aborted_total"] == after["abort"] == 30
    assert after["requests_failed_total"] == after["error"] == 0
    assert after["requests_rejected_total"] == 10
    assert after["requests_in_flight"] == 0
    assert after["time_to_first_token_seconds_count"] == 70
    for name in ("e2e_request_latency_seconds", "request_prompt_tokens", "request_generation_tokens", "request_params_n",
                 "request_params_max_tokens"):
        assert after[f"{name}_count"] == 60, name
    assert after["request_params_n_sum"] == 80 == after["request_time_per_output_token_seconds_count"]
    assert after["request_generation_tokens_sum"] == sum(usage["completion_tokens"] for usage in usages)
    assert after["request_prompt_tokens_sum"] == sum(usage["prompt_tokens"] for usage in usages)
    assert after["engine_requests_received_total"] == 90 == \
        after["engine_requests_finished_total"] + after["engine_requests_aborted_total"]
    assert after["generation_tokens_total"] >= after["request_generation_tokens_sum"]
    # The names of vLLM show the same figures.
    shared = scrape(server, "vllm")
    assert len(shared) > 10 and {name: after[name] for name in shared} == shared


def test_tokens_are_counted_once(rand_server):
    before = scrape(rand_server)
    usages = [rand_server.complete(prompt, max_tokens=7, n=n)["usage"] for prompt, n in
              (([300] * 20, 1), ([300, 301], 3), (["hello", " world hello"], 2))]
    after = scrape(rand_server)
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == 7 * (1 + 3 + 4) == \
        sum(usage["completion_tokens"] for usage in usages)
    assert after["time_to_first_token_seconds_count"] - before["time_to_first_token_seconds_count"] == 3
    assert after["requests_received_total"] - before["requests_received_total"] == 3


def test_head_and_other_methods(rand_server):
    assert rand_server.request("HEAD", "/metrics").status == 200
    assert rand_server.post("/metrics", {}).status == 405


def test_metrics_while_loading(smollm2_path, logs):
    server = Server(smollm2_path, "--kv-cache-memory-bytes", "64MiB", logs=logs).spawn()
    answer = server.get("/metrics")
    assert server.get("/health").status == 503, "it was still loading"
    assert answer.status == 200 and parse(answer.body)
    assert server.stop()[0] == 0


def test_figures_are_there_with_the_answer(rand_server):
    """Whoever has an answer sees its tokens counted and its pages free, without waiting."""
    tokens = rand_server.metric("generation_tokens_total")
    for count in range(1, 31):
        rand_server.complete(PROMPT, max_tokens=3)
        text = rand_server.get("/metrics").body
        values = dict(re.findall(r"^masu:(\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE))
        assert float(values["generation_tokens_total"]) == tokens + 3 * count
        assert values["kv_pages_used"] == values["num_requests_running"] == "0"
