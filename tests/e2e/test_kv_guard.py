"""What looks after the cache's precision on a running server: the KV guard before it serves, the drift monitor while it does."""
import json
import re

import pytest
from serving import wait_until
from test_command_line import check_refusal, run

FOUND = re.compile(r"info KV guard: (\S+): mean KL (\S+) over \d+ tokens \(limit (\S+)\), top-1 \S+ %(, measured earlier)?")


@pytest.fixture
def home(tmp_path):
    """An environment without verdicts of earlier starts."""
    return {"MASU_HOME": str(tmp_path / "home")}


def generate(model, *flags, env):
    result = run("generate", model, "--prompt", "Hello", "--max-tokens", 2, *flags, env=env, seconds=300)
    assert result.returncode == 0, result.stderr
    return result.stderr


# --- the guard -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype, name, limit", [("int8", "int8", 0.01), ("int8/int4", "int8/int4", 0.05), ("fp8", "fp8_e4m3", 0.01)])
def test_silent_for_smollm2(smollm2_path, serve, home, dtype, name, limit):
    """Measured before serving and found again by the next command; no warning from either."""
    flags = "--kv-cache-dtype", dtype
    server = serve(smollm2_path, "--kv-cache-memory-bytes", "64MiB", "--max-model-len", 1024, *flags, env=home)
    first = FOUND.findall(server.log)
    stderr = generate(smollm2_path, *flags, env=home)
    second = FOUND.findall(stderr)
    [(kv, mean_kl, named_limit, earlier)] = first
    assert kv == name and 0 < float(mean_kl) < limit == float(named_limit) and not earlier
    assert second == [(kv, mean_kl, named_limit, ", measured earlier")]
    assert " warning " not in server.log and " warning " not in stderr, server.log + stderr


@pytest.fixture(scope="module")
def biased(tiny):
    """T-KBIAS: K biases of 600 in the first and the last of four layers, more than 8 bits hold beside the rest of K."""
    return tiny.rand("biased", seed=9, layers=4, head_dim=64, vocab=512, k_spike=600)


INT8 = "--kv-cache-dtype", "int8", "--activation-dtype", "float32"
UNCONDITIONED = *INT8, "--no-kv-conditioning"


def test_warns_of_a_bias_in_the_cache(biased, home):
    stderr = generate(biased, *UNCONDITIONED, env=home)
    [warning] = re.findall(r" warning (.*)", stderr)
    assert "kv_cache_dtype int8 moves this model's next tokens" in warning and "limit 0.01" in warning
    assert "--kv-guard fallback" in warning
    assert float(FOUND.search(stderr)[2]) > 0.05
    off = generate(biased, *UNCONDITIONED, "--kv-guard", "off", env=home)
    assert "warning" not in off and "KV guard" not in off


def test_conditioning_makes_the_bias_free(biased, tiny, home):
    """With it, 600 costs what no bias costs. (That may be more than the limit: a random model's next tokens hang on little.)"""
    unbiased = tiny.rand("unbiased", seed=9, layers=4, head_dim=64, vocab=512, k_spike=0)
    kl_biased, kl_unbiased = (float(FOUND.search(generate(model, *INT8, env=home))[2]) for model in (biased, unbiased))
    assert kl_biased <= max(0.001, 3 * kl_unbiased)
    assert float(FOUND.search(generate(biased, *UNCONDITIONED, env=home))[2]) > 10 * kl_biased


def test_refuses_on_request(biased, home):
    result = run("generate", biased, "--prompt", "x", *UNCONDITIONED, "--kv-guard", "refuse", env=home, seconds=300)
    check_refusal(result, "kv_cache_dtype int8", "limit 0.01", "--kv-guard fallback", status=1)
    served = run("serve", biased, "--port", 0, "--kv-cache-memory-bytes", "4MiB", *UNCONDITIONED, "--kv-guard", "refuse", env=home,
                 seconds=300)
    check_refusal(served, "kv_cache_dtype int8", "limit 0.01", "--kv-guard fallback", status=1)
    assert "ready on" not in served.stdout


def test_falls_back_in_the_layers_that_hurt(biased, serve, home):
    server = serve(biased, "--kv-cache-memory-bytes", "8MiB", "--kv-guard", "fallback", *UNCONDITIONED, env=home)
    [warning] = re.findall(r" warning (.*)", server.log)
    assert "layers 0,3 stay at bfloat16" in warning
    assert float(FOUND.search(server.log)[2]) < 0.01
    # Planned once more with what was chosen: two layers of four at 64 values x 2 bytes instead of 64 and a scale's 2.
    before, after = (int(size.replace(",", "")) for size in re.findall(r"^> int8 +dynamic +([\d,]+) ", server.log, re.MULTILINE))
    assert after - before == 2 * 2 * 2 * (2 * 64 - (64 + 2))
    assert server.complete("Hello", max_tokens=4)["usage"]["completion_tokens"] == 4


# --- the drift monitor -----------------------------------------------------------------------------------------------------

def drifting(serve, model, folder, dtype, max_kl):
    policy = folder / "policy.json"
    policy.write_text(json.dumps({"rules": [{
        "name": "chat", "match": {"header": {"X-Task": "chat"}},
        "on_drift": {"max_kl": max_kl, "min_samples": 3, "kv_cache_dtype": "bfloat16"}}]}))
    # Without the guard, which would warn of what is bad on purpose.
    return serve(model, "--kv-cache-memory-bytes", "64MiB", "--max-model-len", 1024, "--kv-cache-dtype", dtype, "--kv-guard", "off",
                 "--kv-policy", policy, "--drift-sample", 1)


def ask(server, number, headers):
    """What an answer of 16 tokens says it was made with."""
    body = {"prompt": f"The most important thing about the number {number} is", "max_tokens": 16, "temperature": 0}
    answer = server.post("/v1/completions", body, headers=headers)
    assert answer.status == 200, answer.body
    return answer.json["masu"]


CHAT = {"X-Task": "chat"}


def sampled(server, dtype, kv_class="chat"):
    counts = [value for labels, value in server.samples("kv_drift_samples_total")
              if (labels["kv_cache_dtype"], labels["class"]) == (dtype, kv_class)]
    return counts[0] if counts else 0


def ask_and_wait(server, dtype, number, headers, kv_class="chat"):
    """ask(), and its sample: a request that ends while another one is being compared is not sampled."""
    before = sampled(server, dtype, kv_class)
    made_with = ask(server, number, headers)
    wait_until(lambda: sampled(server, dtype, kv_class) > before, 120, f"answer {number} is compared with 16 bits")
    return made_with


def test_a_layout_made_worse_on_purpose_moves_its_class(smollm2_path, serve, tmp_path):
    dtype = "int4:plain:norotate"
    server = drifting(serve, smollm2_path, tmp_path, dtype, max_kl=0.01)
    assert server.metric("kv_class_moved", **{"class": "chat"}) == 0
    for number in range(3):
        assert "why" not in ask_and_wait(server, dtype, number, CHAT)
    wait_until(lambda: server.metric("kv_class_moved", **{"class": "chat"}) == 1, 60, "the class moves")
    assert ask(server, 3, CHAT) == {"kv_cache_dtype": "bfloat16", "kv_scale": "none", "why": "drift:chat"}
    assert ask_and_wait(server, dtype, 3, {}, "default").get("why") is None, "other classes stay"
    labels = {"kv_cache_dtype": dtype, "class": "chat"}
    assert server.metric("kv_drift_kl_count", **labels) == 3 == sampled(server, dtype), "16-bit answers are not sampled"
    assert server.metric("kv_drift_kl_sum", **labels) / 3 > 0.01 and 0 < server.metric("kv_drift_top1", **labels) <= 1
    assert len(re.findall(r" warning drift .*class 'chat'.* new ones use bfloat16", server.log)) == 1


def test_int8_does_not_move(smollm2_path, serve, tmp_path):
    server = drifting(serve, smollm2_path, tmp_path, "int8", max_kl=0.01)
    for number in range(5):
        assert ask_and_wait(server, "int8", number, CHAT) == {"kv_cache_dtype": "int8", "kv_scale": "dynamic"}
    assert server.metric("kv_class_moved", **{"class": "chat"}) == 0
    assert 0 < server.metric("kv_drift_kl_sum") / 5 < 0.01
    assert " warning " not in server.log
