"""The same request gives the same tokens and logprobs, whatever runs beside it and however it arrives: bug reports B901
and B904. The numbers of the JSON are compared as they stand."""
import random
import subprocess

import pytest
from serving import BINARY, Server, in_parallel

ENCODINGS = ["bfloat16", "float16", "float32", "fp8", "fp8_e5m2", "int8"]
FIELDS = {"max_tokens": 24, "logprobs": 5, "ignore_eos": True, "return_token_ids": True}


def prompt_of(length, seed=0):
    rng = random.Random(length * 7 + seed)
    return [rng.randrange(6, 512) for _ in range(length)]


PROMPTS = [prompt_of(length) for length in (1, 15, 16, 17, 31, 32, 33, 100)]


def result_of(choice):
    return {key: choice[key] for key in ("text", "token_ids", "logprobs", "finish_reason")}


def alone(server, prompts=None, **fields):
    return [result_of(server.complete(prompt, **(FIELDS | fields))["choices"][0]) for prompt in prompts or PROMPTS]


@pytest.fixture(scope="module", params=ENCODINGS)
def server(request, tiny, logs):
    with Server(tiny.rand(), "--kv-cache-memory-bytes", "16MiB", "--kv-cache-dtype", request.param, logs=logs) as server:
        server.encoding = request.param
        server.alone = alone(server)
        yield server


def test_repeated(server):
    assert alone(server) == server.alone
    assert all(len(result["token_ids"]) == 24 and None not in result["logprobs"]["token_logprobs"] for result in server.alone)
    assert len({tuple(result["token_ids"]) for result in server.alone}) == len(PROMPTS)


@pytest.mark.parametrize("neighbours", [1, 3, 16, 33])
def test_beside_neighbours(server, neighbours):
    """Short and long ones, greedy and drawn, some that end early."""
    rng = random.Random(neighbours)
    jobs = [("probe", i) for i in range(len(PROMPTS))]
    # Long, so that the others arrive while it is computed and meet in the steps after it.
    gate = "neighbour", {"prompt": prompt_of(1900), "max_tokens": 1}
    jobs += [("neighbour", {"prompt": prompt_of(rng.choice([1, 5, 16, 40, 200]), seed=i), "max_tokens": rng.choice([1, 3, 30, 60]),
                            "temperature": rng.choice([0, 1]), "seed": i, "n": rng.choice([1, 1, 3])})
             for i in range(neighbours)]
    rng.shuffle(jobs)
    jobs.insert(0, gate)

    def work(job):
        kind, what = job
        if kind == "neighbour":
            return server.complete(**what)["usage"]
        return what, result_of(server.complete(PROMPTS[what], **FIELDS)["choices"][0])
    steps, tokens = server.metric("engine_steps_total"), server.metric("generation_tokens_total")
    answers = dict(answer for answer in in_parallel(work, jobs) if isinstance(answer, tuple))
    assert [answers[i] for i in range(len(PROMPTS))] == server.alone
    per_step = (server.metric("generation_tokens_total") - tokens) / (server.metric("engine_steps_total") - steps)
    assert per_step > 1.5, "several requests were in one step"


def test_one_request_with_many_prompts(server):
    answer = server.complete(PROMPTS, **FIELDS)
    assert [result_of(choice) for choice in answer["choices"]] == server.alone
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(PROMPTS)))


def test_n(server):
    """Greedy choices are all the same; drawn ones repeat with their seed, and the first is that of n=1."""
    answer = server.complete(PROMPTS[3], **FIELDS, n=5)
    assert [result_of(choice) for choice in answer["choices"]] == [server.alone[3]] * 5
    drawn = {"temperature": 1, "seed": 11}
    many = server.complete(PROMPTS[3], **(FIELDS | drawn), n=5)["choices"]
    assert result_of(many[0]) == alone(server, [PROMPTS[3]], **drawn)[0]
    assert len({tuple(choice["token_ids"]) for choice in many}) == 5


def test_streamed(server):
    for prompt, expected in zip(PROMPTS, server.alone):
        streamed = server.stream_complete(prompt, **FIELDS)
        assert streamed.text() == expected["text"] and streamed.token_ids[0] == expected["token_ids"]
        assert streamed.logprobs[0] == expected["logprobs"]["token_logprobs"]
        assert streamed.finish[0] == expected["finish_reason"]


@pytest.mark.parametrize("flags", [
    ["--long-prefill-token-threshold", "1"], ["--long-prefill-token-threshold", "7"], ["--long-prefill-token-threshold", "16"],
    ["--long-prefill-token-threshold", "64"], ["--max-num-batched-tokens", "5"], ["--threads", "1"], ["--threads", "2"],
    ["--threads", "3"], ["--max-num-seqs", "1", "--max-num-queued-reqs", "9"], ["--block-size", "64"]], ids=" ".join)
def test_other_settings(server, tiny, serve, flags):
    """Chunks, threads, seats and pages of another size: the same bits."""
    other = serve(tiny.rand(), "--kv-cache-memory-bytes", "16MiB", "--kv-cache-dtype", server.encoding, *flags)
    assert alone(other) == server.alone
    if flags[0] in ("--long-prefill-token-threshold", "--max-num-batched-tokens"):
        steps = sum(-(-len(prompt) // int(flags[1])) + 23 for prompt in PROMPTS)
        assert other.metric("engine_steps_total") >= steps, "prompts were computed in chunks"
    together = in_parallel(lambda prompt: result_of(other.complete(prompt, **FIELDS)["choices"][0]), PROMPTS)
    assert together == server.alone


def test_encodings_differ(tiny, serve):
    """The comparison can fail: another encoding does give other logprobs."""
    results = [alone(serve(tiny.rand(), "--kv-cache-memory-bytes", "16MiB", "--kv-cache-dtype", name), PROMPTS[-1:])
               for name in ENCODINGS]
    assert len({str(result) for result in results}) == len(ENCODINGS)


def test_activation_types_differ(tiny, serve):
    results = [alone(serve(tiny.rand(), "--kv-cache-memory-bytes", "16MiB", "--activation-dtype", name), PROMPTS[-1:])
               for name in ("float32", "bfloat16")]
    assert results[0] != results[1]


def test_generate_and_server(tiny, serve):
    """`masu generate` and the server give the same text, raw and through the chat template, greedy and drawn."""
    model = tiny.flat("printable", tokens=range(300, 428))
    server = serve(model, "--kv-cache-memory-bytes", "16MiB")

    def generate(*flags):
        command = [BINARY, "generate", model, "-p", "hello world", "--max-tokens", "20", "--kv-cache-memory-bytes", "16MiB"]
        result = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60, check=True)
        return result.stdout.rstrip("\n")
    for seed in ("1", "2"):
        drawn = {"temperature": 1, "seed": int(seed), "max_tokens": 20}
        flags = "--temperature", "1", "--seed-of-request", seed
        assert generate(*flags, "--raw") == server.complete("hello world", **drawn)["choices"][0]["text"]
        assert generate(*flags) == server.chat("hello world", **drawn)["choices"][0]["message"]["content"]
    assert generate("--raw") == server.complete("hello world", max_tokens=20)["choices"][0]["text"]


def test_generate_and_server_on_a_real_model(smollm2, smollm2_path):
    question = "What is the capital of France?"
    result = subprocess.run([BINARY, "generate", smollm2_path, "-p", question, "--max-tokens", "16", "--kv-cache-dtype", "fp8",
                             "--kv-cache-memory-bytes", "64MiB"], capture_output=True, text=True, timeout=120, check=True)
    answer = smollm2.chat(question, max_tokens=16)["choices"][0]["message"]["content"]
    assert "Paris" in answer and result.stdout.strip() == answer.strip()
