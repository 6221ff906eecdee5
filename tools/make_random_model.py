#!/usr/bin/env python3
"""Writes a Llama checkpoint of a given shape with random weights, for measuring speed, in several formats at once.

Every format holds the same weights: they are drawn, rounded to bfloat16, and written as they are or quantized from there.

  bf16, f16, q8_0, q4_0   OUT/FORMAT.gguf; the embedding of q4_0 is Q8_0, as llama.cpp's own small models have it
  hf                      OUT/hf: config.json, tokenizer.json and safetensors in bfloat16
  hf-int8                 the same with linear layers in int8, a scale for each row (compressed-tensors; activations int8)
  hf-int4                 ... in int4, the numbers of q4_0, a bfloat16 scale for each 32 of a row (compressed-tensors)

The default shape is that of a Llama of one billion parameters with SmolLM2's vocabulary, and the embedding is the output
matrix too (--untied: another one of its own). --weights-of takes shape and weights of a GGUF file instead of random ones: the
same model in other formats. The tokenizer is that of the file given by --tokenizer, so that servers open the result.
Tensors are written one after another: at most 3 GiB of memory for the default shape. Needs numpy and gguf.
"""
import argparse
import dataclasses
import json
import math
import os
import pathlib
import sys
import time

import gguf
import numpy
from gguf import GGMLQuantizationType as Type

FORMATS = {"bf16": Type.BF16, "f16": Type.F16, "q8_0": Type.Q8_0, "q4_0": Type.Q4_0, "hf": None, "hf-int8": None, "hf-int4": None}
FILE_TYPES = {Type.BF16: gguf.LlamaFileType.MOSTLY_BF16, Type.F16: gguf.LlamaFileType.MOSTLY_F16,
              Type.Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0, Type.Q4_0: gguf.LlamaFileType.MOSTLY_Q4_0}
# Numbers of an int4 weight that share a scale: Q4_0's block.
GROUP = 32
# Rows are quantized in pieces of about this many numbers: numpy makes several copies of them.
PIECE = 1 << 22


@dataclasses.dataclass
class Shape:
    layers: int = 16
    hidden: int = 2048
    ffn: int = 8192
    heads: int = 32
    kv_heads: int = 8
    vocabulary: int = 49152
    context: int = 8192
    rope_theta: float = 100000.0
    norm_epsilon: float = 1e-5
    tied: bool = True

    @property
    def head_size(self):
        return self.hidden // self.heads


@dataclasses.dataclass
class Tensor:
    name: str       # in a GGUF file
    hf_name: str    # in a Hugging Face checkpoint
    shape: tuple    # [rows, columns]: a row makes one output; or [n]
    rope_heads: int = 0  # of Q and K: their rows are ordered by head and RoPE pair, otherwise in each of the two formats

    @property
    def is_linear(self):
        return len(self.shape) == 2 and self.name.startswith("blk.")

    @property
    def size(self):
        return math.prod(self.shape)


def tensors_of(shape):
    """All tensors in the order in which they are written."""
    kv = shape.kv_heads * shape.head_size
    yield Tensor("token_embd.weight", "model.embed_tokens.weight", (shape.vocabulary, shape.hidden))
    for i in range(shape.layers):
        ours, theirs = f"blk.{i}", f"model.layers.{i}"
        yield Tensor(f"{ours}.attn_norm.weight", f"{theirs}.input_layernorm.weight", (shape.hidden,))
        yield Tensor(f"{ours}.attn_q.weight", f"{theirs}.self_attn.q_proj.weight", (shape.hidden, shape.hidden), shape.heads)
        yield Tensor(f"{ours}.attn_k.weight", f"{theirs}.self_attn.k_proj.weight", (kv, shape.hidden), shape.kv_heads)
        yield Tensor(f"{ours}.attn_v.weight", f"{theirs}.self_attn.v_proj.weight", (kv, shape.hidden))
        yield Tensor(f"{ours}.attn_output.weight", f"{theirs}.self_attn.o_proj.weight", (shape.hidden, shape.hidden))
        yield Tensor(f"{ours}.ffn_norm.weight", f"{theirs}.post_attention_layernorm.weight", (shape.hidden,))
        yield Tensor(f"{ours}.ffn_gate.weight", f"{theirs}.mlp.gate_proj.weight", (shape.ffn, shape.hidden))
        yield Tensor(f"{ours}.ffn_up.weight", f"{theirs}.mlp.up_proj.weight", (shape.ffn, shape.hidden))
        yield Tensor(f"{ours}.ffn_down.weight", f"{theirs}.mlp.down_proj.weight", (shape.hidden, shape.ffn))
    yield Tensor("output_norm.weight", "model.norm.weight", (shape.hidden,))
    if not shape.tied:
        yield Tensor("output.weight", "lm_head.weight", (shape.vocabulary, shape.hidden))


class RandomWeights:
    """Normal numbers whose products keep the size of their input (variance 1 / columns); norms are ones."""

    def __init__(self, seed):
        self.seed = seed

    def read(self, tensor):
        if len(tensor.shape) == 1:
            return numpy.ones(tensor.shape, numpy.float32)
        # Each tensor has a stream of its own, so that it does not depend on the others.
        name = int.from_bytes(tensor.name.encode(), "little")
        generator = numpy.random.Generator(numpy.random.SFC64([self.seed, *(name >> shift & 0xffffffff for shift in range(0, 320, 32))]))
        numbers = generator.standard_normal(tensor.shape, numpy.float32)
        numbers *= 1 / math.sqrt(tensor.shape[1])
        return numbers


class FileWeights:
    def __init__(self, reader):
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def read(self, tensor):
        stored = self.tensors.get(tensor.name)
        if stored is None:
            sys.exit(f"make_random_model: the file of --weights-of has no {tensor.name}: only plain Llama models are read")
        return gguf.quants.dequantize(stored.data, stored.tensor_type).reshape(tensor.shape)


def shape_of(reader):
    """The shape of a GGUF file of the Llama family."""
    def field(name):
        return reader.fields[f"llama.{name}"].contents()
    if reader.fields["general.architecture"].contents() != "llama":
        sys.exit("make_random_model: --weights-of reads GGUF files of the architecture 'llama' only")
    return Shape(field("block_count"), field("embedding_length"), field("feed_forward_length"), field("attention.head_count"),
                 field("attention.head_count_kv"), len(reader.fields["tokenizer.ggml.tokens"].data), field("context_length"),
                 field("rope.freq_base"), field("attention.layer_norm_rms_epsilon"),
                 all(tensor.name != "output.weight" for tensor in reader.tensors))


def by_pieces(function, numbers):
    """function(numbers), row by row, a few rows at a time."""
    rows = max(1, PIECE // numbers.shape[-1])
    return numpy.concatenate([function(numbers[at:at + rows]) for at in range(0, len(numbers), rows)])


def bfloat16(numbers):
    """The bits of the nearest bfloat16, ties to even, as uint16. Finite numbers only."""
    bits = numbers.view(numpy.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def hf_order(tensor, numbers):
    """Rows of Q and K by half (0, d/2, 1, d/2 + 1, ... becomes 0, 1, ...): GGUF has the two numbers of a RoPE pair side by side."""
    if not tensor.rope_heads:
        return numbers
    return numbers.reshape(tensor.rope_heads, -1, 2, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)


class GgufFile:
    def __init__(self, out, format_name, shape, tokenizer):
        self.kind = FORMATS[format_name]
        self.writer = writer = gguf.GGUFWriter(str(out / f"{format_name}.gguf"), "llama")
        writer.add_name(out.resolve().name)
        writer.add_block_count(shape.layers)
        writer.add_context_length(shape.context)
        writer.add_embedding_length(shape.hidden)
        writer.add_feed_forward_length(shape.ffn)
        writer.add_head_count(shape.heads)
        writer.add_head_count_kv(shape.kv_heads)
        writer.add_rope_dimension_count(shape.head_size)
        writer.add_rope_freq_base(shape.rope_theta)
        writer.add_layer_norm_rms_eps(shape.norm_epsilon)
        writer.add_vocab_size(shape.vocabulary)
        writer.add_file_type(FILE_TYPES[self.kind])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        for field in tokenizer.fields.values():
            if field.name.startswith("tokenizer."):
                element = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
                writer.add_key_value(field.name, field.contents(), field.types[0], element)
        for tensor in tensors_of(shape):
            kind = self.kind_of(tensor)
            block, bytes_of_block = gguf.GGML_QUANT_SIZES[kind]
            writer.add_tensor_info(tensor.name, tensor.shape, numpy.dtype(numpy.float32), tensor.size // block * bytes_of_block, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()

    def kind_of(self, tensor):
        if len(tensor.shape) == 1:
            return Type.F32
        return Type.Q8_0 if self.kind == Type.Q4_0 and not tensor.is_linear else self.kind

    def write(self, tensor, numbers):
        kind = self.kind_of(tensor)
        self.writer.write_tensor_data(by_pieces(lambda piece: gguf.quants.quantize(piece, kind), numbers))

    def close(self):
        self.writer.close()


def int8_rows(numbers):
    """int8 with a float32 scale for each row, to nearest."""
    scales = numpy.maximum(numpy.abs(numbers).max(axis=1, keepdims=True), 1e-12) / 127
    return [("weight", "I8", numpy.rint(numbers / scales).astype(numpy.int8)), ("weight_scale", "F32", scales.astype(numpy.float32))]


def int4_groups(numbers):
    """int4 in groups of a row, eight to an int32 from its low bits on with 8 added: the numbers that Q4_0 has."""
    def quantize(piece):
        blocks = gguf.quants.quantize(piece, Type.Q4_0).reshape(len(piece), -1, 18)  # a float16 scale, then 16 bytes
        scales = bfloat16(blocks[..., :2].copy().view(numpy.float16)[..., 0].astype(numpy.float32))
        nibbles = numpy.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], axis=-1)  # low nibbles are the first half
        pairs = nibbles.reshape(len(piece), -1, 2)
        packed = numpy.ascontiguousarray(pairs[..., 0] | pairs[..., 1] << 4).view(numpy.int32)
        return numpy.concatenate([packed, scales.astype(numpy.int32)], axis=1)
    both = by_pieces(quantize, numbers)
    columns = numbers.shape[1] // 8
    return [("weight_packed", "I32", both[:, :columns]), ("weight_scale", "BF16", both[:, columns:].astype(numpy.uint16)),
            ("weight_shape", "I64", numpy.array(numbers.shape, numpy.int64))]


def parts_of(format_name, tensor, numbers):
    """What a Hugging Face checkpoint holds for one tensor: names, safetensors' dtypes and arrays."""
    if tensor.is_linear and format_name != "hf":
        parts = int8_rows(numbers) if format_name == "hf-int8" else int4_groups(numbers)
        return [(f"{tensor.hf_name.removesuffix('weight')}{suffix}", *rest) for suffix, *rest in parts]
    return [(tensor.hf_name, "BF16", bfloat16(numbers))]


def quantization_config(format_name):
    """As compressed-tensors writes it (quantization_config of config.json)."""
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
    group = {"targets": ["Linear"], "weights": weights}
    if format_name == "hf-int4":
        weights.update(num_bits=4, strategy="group", group_size=GROUP)
    else:
        group["input_activations"] = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized" if format_name == "hf-int4" else "int-quantized",
            "quantization_status": "compressed", "ignore": ["lm_head"], "config_groups": {"group_0": group}}


def tokenizer_json(tokenizer):
    """tokenizer.json of a GGUF file with a byte-level vocabulary that cuts text as SmolLM2 does."""
    def field(name):
        return tokenizer.fields[f"tokenizer.ggml.{name}"].contents()
    if (field("model"), field("pre")) != ("gpt2", "smollm"):
        sys.exit("make_random_model: Hugging Face formats need a tokenizer file with SmolLM2's tokenizer (gpt2, smollm)")
    tokens, kinds = field("tokens"), field("token_type")
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
            "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True} for i, (token, kind) in enumerate(zip(tokens, kinds)) if kind == gguf.TokenType.CONTROL],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "vocab": {token: i for i, token in enumerate(tokens)},
                      "merges": field("merges")}}


class HuggingFaceDirectory:
    def __init__(self, out, format_name, shape, tokenizer):
        self.format_name = format_name
        folder = out / format_name
        folder.mkdir(exist_ok=True)
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",
                  "num_hidden_layers": shape.layers, "hidden_size": shape.hidden, "intermediate_size": shape.ffn,
                  "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_size,
                  "vocab_size": shape.vocabulary, "max_position_embeddings": shape.context, "rope_theta": shape.rope_theta,
                  "rms_norm_eps": shape.norm_epsilon, "tie_word_embeddings": shape.tied, "attention_bias": False, "mlp_bias": False,
                  "bos_token_id": 1, "eos_token_id": 2}
        if format_name != "hf":
            config["quantization_config"] = quantization_config(format_name)
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(tokenizer), ensure_ascii=False))
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}\n')
        # The header comes first and has the place of every part; one column block of zeros tells names, dtypes and sizes.
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for tensor in tensors_of(shape):
            for name, dtype, part_shape, size in self.layout(tensor):
                header[name] = {"dtype": dtype, "shape": part_shape, "data_offsets": [at, at + size]}
                at += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.file = open(folder / "model.safetensors", "wb")
        self.file.write(len(text).to_bytes(8, "little") + text)

    def layout(self, tensor):
        """(name, dtype, shape, bytes) of the parts of a tensor, from what one row of it becomes."""
        rows, row = tensor.shape[0], numpy.zeros((1, tensor.shape[-1]), numpy.float32)
        for name, dtype, part in parts_of(self.format_name, tensor, row):
            if len(tensor.shape) == 1 or dtype == "I64":
                shape = list(tensor.shape) if dtype != "I64" else [2]
            else:
                shape = [rows, part.shape[1]]
            yield name, dtype, shape, math.prod(shape) * part.itemsize

    def write(self, tensor, numbers):
        for _, _, part in parts_of(self.format_name, tensor, hf_order(tensor, numbers)):
            self.file.write(numpy.ascontiguousarray(part).data)

    def close(self):
        self.file.close()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, metavar="OUT", help="folder to write to")
    parser.add_argument("--formats", default="bf16,q8_0,q4_0,hf", help=f"of {', '.join(FORMATS)} (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the weights (default: 1)")
    home = os.environ.get("MASU_HOME") or pathlib.Path.home() / ".cache/masu"
    parser.add_argument("--tokenizer", type=pathlib.Path, default=f"{home}/models/SmolLM2-135M-Instruct.Q4_1.gguf", metavar="FILE.gguf",
                        help="whose tokenizer to copy (default: %(default)s; tools/fetch_model.sh fetches it)")
    parser.add_argument("--weights-of", type=pathlib.Path, metavar="FILE.gguf", help="shape, weights and tokenizer of this file")
    for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocabulary", "context"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Shape, name), help="(default: %(default)s)")
    parser.add_argument("--untied", action="store_true", help="an output matrix beside the embedding")
    options = parser.parse_args()
    options.formats = options.formats.split(",")
    for name in options.formats:
        if name not in FORMATS:
            parser.error(f"unknown format '{name}': it is one of {', '.join(FORMATS)}")
    if options.weights_of:
        options.tokenizer = options.weights_of
    if not options.tokenizer.is_file():
        parser.error(f"{options.tokenizer} is not there; tools/fetch_model.sh fetches the default")
    if options.hidden % options.heads or options.heads % options.kv_heads or options.hidden % GROUP or options.ffn % GROUP:
        parser.error(f"heads must divide hidden, kv-heads heads, and {GROUP} hidden and ffn")
    return options


def main():
    options = arguments()
    tokenizer = gguf.GGUFReader(options.tokenizer)
    if options.weights_of:
        shape, source = shape_of(tokenizer), FileWeights(tokenizer)
    else:
        shape = Shape(options.layers, options.hidden, options.ffn, options.heads, options.kv_heads, options.vocabulary, options.context,
                      tied=not options.untied)
        source = RandomWeights(options.seed)
        tokens = len(tokenizer.fields["tokenizer.ggml.tokens"].data)
        if tokens != shape.vocabulary:
            sys.exit(f"make_random_model: {options.tokenizer} has {tokens} tokens, not {shape.vocabulary}: give --vocabulary {tokens}")
    options.out.mkdir(parents=True, exist_ok=True)
    outputs = [(HuggingFaceDirectory if name.startswith("hf") else GgufFile)(options.out, name, shape, tokenizer)
               for name in options.formats]
    total, done, start, shown = sum(tensor.size for tensor in tensors_of(shape)), 0, time.monotonic(), 0.0
    for tensor in tensors_of(shape):
        rounded = bfloat16(source.read(tensor)).astype(numpy.uint32)
        rounded <<= 16
        for output in outputs:
            output.write(tensor, rounded.view(numpy.float32))
        done += tensor.size
        seconds = time.monotonic() - start
        if seconds > shown + 2 or done == total:
            shown = seconds
            print(f"{done / total:6.1%}  {seconds:4.0f} s, about {seconds * (total / done - 1):.0f} s left  {tensor.name}", flush=True)
    for output in outputs:
        output.close()
    print(f"{options.out}: {total:,} weights as {', '.join(options.formats)}")


if __name__ == "__main__":
    main()
