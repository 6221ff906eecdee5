"""OpenVINO GenAI: ContinuousBatchingPipeline from a GGUF file, step by step, with its prefix cache on."""
import time

import numpy
import openvino
import openvino_genai

from protocol import fresh_prompt, prompts, serve


class OpenVino:
    def __init__(self, options):
        self.options = options
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = -(-options.cache_bytes // 2**30)
        scheduler.max_num_seqs = options.sequences
        scheduler.max_num_batched_tokens = 2048  # its default, 256, is slower
        scheduler.enable_prefix_caching = True
        properties = {"INFERENCE_NUM_THREADS": options.threads, "KV_CACHE_PRECISION": options.kv}
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(options.model, scheduler, "CPU", properties)
        self.requests = 0
        self.version = f"openvino-genai {openvino_genai.__version__}"
        self.flags = f"{properties} max_num_batched_tokens=2048 enable_prefix_caching=True"

    def run(self, token_lists, tokens):
        """Seconds to the first token of all, and from there to their last."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = tokens
        config.ignore_eos = True
        config.do_sample = False
        inputs = [openvino.Tensor(numpy.array([ids], numpy.int64)) for ids in token_lists]
        start = time.perf_counter()
        handles = []
        for tensor in inputs:
            self.requests += 1
            handles.append(self.pipeline.add_request(self.requests, tensor, config))
        while not all(handle.can_read() for handle in handles):
            self.pipeline.step()
        first = time.perf_counter()
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
        end = time.perf_counter()
        for handle in handles:
            [output] = handle.read_all()
            if len(output.generated_ids) != tokens:
                raise RuntimeError(f"{len(output.generated_ids)} tokens instead of {tokens}")
        return first - start, end - first

    def prefill(self, context, sample):
        return self.run([fresh_prompt(self.options, context, sample)], 1)[0]

    def fill(self, concurrency, context):
        lists = prompts(self.options, concurrency, context)
        return self.run(lists[:1] if self.options.fill == "shared" else lists, 1)[0]

    def decode(self, concurrency, context, steps):
        return self.run(prompts(self.options, concurrency, context), 1 + steps)[1]


serve(OpenVino)
