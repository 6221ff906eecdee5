"""llama.cpp: its C API in batches, as its own llama-batched-bench calls it. Nothing is sampled; the next ids are random ones.

A prompt is computed once. With sequences of their own its K and V are copied (each sequence is a stream of the cache, so the
copies lie in memory of their own); shared ones point at the same cells of a unified cache."""
import ctypes
import os
import time

import llama_cpp as llama

from protocol import fresh_prompt, prompts, serve

KINDS = {"f16": llama.GGML_TYPE_F16, "q8_0": llama.GGML_TYPE_Q8_0}
# llama.cpp's own default, the largest call to llama_decode.
BATCH = 2048


class LlamaCpp:
    def __init__(self, options):
        self.options = options
        unified = options.fill == "shared"
        llama.llama_backend_init()
        self.model = llama.llama_model_load_from_file(options.model.encode(), llama.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {os.path.basename(options.model)}")
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = options.tokens if unified else options.sequences * options.context
        parameters.n_batch = BATCH
        parameters.n_seq_max = options.sequences
        parameters.n_threads = parameters.n_threads_batch = options.threads
        parameters.kv_unified = unified
        parameters.type_k = parameters.type_v = KINDS[options.kv]
        self.context = llama.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise RuntimeError("llama.cpp does not open a context with these parameters")
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_init(BATCH, 0, 1)
        self.filled = None
        self.version = f"llama-cpp-python {llama.__version__}"
        features = llama.llama_print_system_info().decode().strip(" |")
        self.flags = (f"n_threads={options.threads} n_batch={BATCH} n_ubatch={parameters.n_ubatch} flash_attn=auto "
                      f"type_k=type_v={options.kv} kv_unified={unified}; {features.replace(' = 1', '')}")

    def compute(self, tokens, positions, sequences, logits):
        """One llama_decode; `logits`: for which tokens."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wanted) in enumerate(zip(tokens, positions, sequences, logits)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = sequence
        status = llama.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode ended with status {status}")
        llama.llama_synchronize(self.context)

    def compute_prompt(self, tokens):
        for at in range(0, len(tokens), BATCH):
            piece = tokens[at:at + BATCH]
            last = at + len(piece) == len(tokens)
            self.compute(piece, range(at, at + len(piece)), [0] * len(piece), [0] * (len(piece) - 1) + [last])

    def clear(self):
        llama.llama_memory_clear(self.memory, False)
        self.filled = None

    def prefill(self, context, sample):
        self.clear()
        prompt = fresh_prompt(self.options, context, sample)
        start = time.perf_counter()
        self.compute_prompt(prompt)
        return time.perf_counter() - start

    def fill(self, concurrency, context):
        start = time.perf_counter()
        self.clear()
        self.compute_prompt(prompts(self.options, 1, context)[0][:context])
        for sequence in range(1, concurrency):
            llama.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
        self.filled = concurrency, context
        return time.perf_counter() - start

    def decode(self, concurrency, context, steps):
        if self.filled != (concurrency, context):
            self.fill(concurrency, context)
        sequences = range(concurrency)
        ids = [fresh_prompt(self.options, 1 + steps, sequence) for sequence in sequences]

        def step(i):
            self.compute([own[i] for own in ids], [context + i] * concurrency, sequences, [1] * concurrency)
        step(0)
        start = time.perf_counter()
        for i in range(1, 1 + steps):
            step(i)
        seconds = time.perf_counter() - start
        for sequence in sequences:
            llama.llama_memory_seq_rm(self.memory, sequence, context, -1)
        return seconds


QUIET = llama.llama_log_callback(lambda level, text, data: None)
if not os.environ.get("PEERS_VERBOSE"):
    llama.llama_log_set(QUIET, ctypes.c_void_p(0))
serve(LlamaCpp)
