"""vLLM on a CPU: LLM's engine, step by step.

Sequences of their own are filled by its DecodeBenchConnector, which claims their prompts as computed and writes random numbers
into their pages; shared ones hit its prefix cache."""
import os
import time

from protocol import fresh_prompt, prompts, serve


class Vllm:
    def __init__(self, options):
        os.environ.update(VLLM_CPU_KVCACHE_SPACE=str(-(-options.cache_bytes // 2**30)), VLLM_LOGGING_LEVEL="WARNING",
                          VLLM_CPU_OMP_THREADS_BIND=f"0-{options.threads - 1}", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")
        import vllm
        self.sampling = vllm.SamplingParams
        self.options = options
        arguments = {"dtype": "bfloat16", "kv_cache_dtype": options.kv, "enforce_eager": True, "max_num_batched_tokens": 2048}
        arguments["enable_prefix_caching"] = options.fill == "shared"
        if options.fill == "own":
            arguments["kv_transfer_config"] = {"kv_connector": "DecodeBenchConnector", "kv_role": "kv_both",
                                               "kv_connector_extra_config": {"fill_mean": 0.0, "fill_std": 1.0}}
        self.engine = vllm.LLM(options.model, skip_tokenizer_init=True, max_model_len=options.context,
                               max_num_seqs=options.sequences, **arguments).llm_engine
        self.requests = 0
        self.version = f"vllm-cpu {vllm.__version__}"
        self.flags = " ".join([*(f"{name}={value}" for name, value in arguments.items()), f"VLLM_CPU_OMP_THREADS_BIND=0-{options.threads - 1}"])

    def run(self, token_lists, tokens):
        """Seconds to the first token of all, and from there to their last."""
        sampling = self.sampling(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        made, start, first = {}, time.perf_counter(), None
        for ids in token_lists:
            self.requests += 1
            made[str(self.requests)] = 0
            self.engine.add_request(str(self.requests), {"prompt_token_ids": ids}, sampling)
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                made[output.request_id] = len(output.outputs[0].token_ids)
            if first is None and all(made.values()):
                first = time.perf_counter()
        end = time.perf_counter()
        if set(made.values()) != {tokens}:
            raise RuntimeError(f"{sorted(made.values())[0]} tokens instead of {tokens}")
        return first - start, end - first

    def prefill(self, context, sample):
        return self.run([fresh_prompt(self.options, context, sample)], 1)[0]

    def fill(self, concurrency, context):
        lists = prompts(self.options, concurrency, context)
        return self.run(lists[:1] if self.options.fill == "shared" else lists, 1)[0]

    def decode(self, concurrency, context, steps):
        return self.run(prompts(self.options, concurrency, context), 1 + steps)[1]


if __name__ == "__main__":
    serve(Vllm)
