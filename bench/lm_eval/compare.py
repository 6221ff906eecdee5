#!/usr/bin/env python3
"""ARC-Easy and ARC-Challenge twice on the same questions: by lm-evaluation-harness, which asks `masu serve` through
local-completions, and by `masu eval`; both with a bfloat16 and with an int8 KV cache. Prints a table, and exits with 1 if
any score differs by more than one question in a hundred. Run it by run.sh, which installs the harness."""
import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from serving import BINARY, Server  # noqa: E402  (it lies beside the end-to-end tests)

TASKS = ["arc_easy", "arc_challenge"]
DTYPES = ["bfloat16", "int8"]
METRICS = ["acc", "acc_norm"]
LARGEST_DIFFERENCE = 0.01
# Requests of the harness that are under way together.
CONCURRENT = 8


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=os.environ.get("MASU_TEST_MODEL"),
                        help="a .gguf file or a directory; default: MASU_TEST_MODEL")
    parser.add_argument("--data", type=pathlib.Path, default=f"{os.environ.get('MASU_TEST_DATA', ROOT / '../shared')}/data/eval",
                        help="folder with arc_easy.jsonl and arc_challenge.jsonl; default: data/eval in MASU_TEST_DATA")
    parser.add_argument("--limit", type=int, default=300, help="questions of each task, from the first on (default: 300)")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/lm_eval", help="folder for reports and logs")
    options = parser.parse_args()
    if not options.model:
        parser.error("which model? give --model or MASU_TEST_MODEL")
    for task in TASKS:
        if not (options.data / f"{task}.jsonl").is_file():
            parser.error(f"{options.data / task}.jsonl is not there; give its folder as --data")
    return options


def offline(work):
    """An environment without a network: everything that is asked for is on this machine."""
    return os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(work / "hf"),
                         "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}


def run(command, log, **options):
    """Runs to the end; what it wrote goes to `log`, of which a failure shows the end."""
    print(f"masu: {log.stem}, its output is in {log}", flush=True)
    with open(log, "wb") as output:
        status = subprocess.run([str(part) for part in command], stdout=output, stderr=subprocess.STDOUT, check=False, **options).returncode
    if status != 0:
        sys.exit(f"{log.read_text(errors='replace')[-3000:]}\nmasu: {log.stem} ended with status {status}")


def scores_of_masu(options):
    """{(task, dtype, metric): score} of one run of `masu eval`."""
    report = options.work / "masu-eval.json"
    run([BINARY, "eval", ",".join(TASKS), options.model, "--data", options.data, "--limit", options.limit, "--baseline", DTYPES[0],
         "--kv-cache-dtype", ",".join(DTYPES[1:]), f"--json={report}"], options.work / "masu-eval.log")
    scores = {}
    for task in json.loads(report.read_text())["tasks"]:
        assert len(task["questions"]) == options.limit, f"{task['name']} has {len(task['questions'])} questions"
        for one in task["runs"]:
            scores[task["name"], one["kv_cache_dtype"], "acc"] = one["score"]
            scores[task["name"], one["kv_cache_dtype"], "acc_norm"] = one["extra"]["acc_norm"]
    return scores


def scores_of_harness(options, dtype):
    """The same of lm-evaluation-harness, for one server."""
    report = options.work / f"lm-eval-{dtype}.json"
    for earlier in options.work.glob(f"{report.stem}*.json"):
        earlier.unlink()  # the harness adds a time to the name
    with Server(options.model, "--kv-cache-dtype", dtype, "--kv-cache-dtype-choices", "none", "--kv-cache-memory-bytes", "512MiB",
                logs=options.work) as server:
        # It finds /tokenizer_info, and tokenizes with /tokenize.
        model = f"model={server.model},base_url={server.url}/v1/completions,num_concurrent={CONCURRENT}"
        run([sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", model, "--include_path", HERE,
             "--tasks", ",".join(f"masu_{task}" for task in TASKS), "--limit", options.limit, "--output_path", report],
            options.work / f"lm-eval-{dtype}.log", cwd=options.data, env=offline(options.work))
    [written] = options.work.glob(f"{report.stem}*.json")
    results = json.loads(written.read_text())
    for task in TASKS:
        effective = results["n-samples"][f"masu_{task}"]["effective"]
        assert effective == options.limit, f"{task}: the harness asked {effective} questions"
    return {(task, dtype, metric): results["results"][f"masu_{task}"][f"{metric},none"] for task in TASKS for metric in METRICS}


def main():
    options = arguments()
    # The harness runs in the folder of the data.
    options.work, options.data, options.model = (path.resolve() for path in (options.work, options.data, options.model))
    options.work.mkdir(parents=True, exist_ok=True)
    masu = scores_of_masu(options)
    harness = {key: score for dtype in DTYPES for key, score in scores_of_harness(options, dtype).items()}
    print(f"\n{options.model.stem}, the first {options.limit} questions of each task\n")
    print("| task          | KV cache | metric   | lm-eval  | masu eval | difference |")
    print("|---------------|----------|----------|----------|-----------|------------|")
    too_far = 0
    for key, score in harness.items():
        difference = round(score - masu[key], 9) + 0.0  # means are rounded differently; no "-0"
        too_far += abs(difference) > LARGEST_DIFFERENCE
        print(f"| {key[0]:13} | {key[1]:8} | {key[2]:8} | {score:8.2%} | {masu[key]:9.2%} | {difference:+10.2%} |")
    if too_far:
        sys.exit(f"masu: {too_far} of {len(harness)} scores differ by more than {LARGEST_DIFFERENCE:.0%}")


if __name__ == "__main__":
    main()
