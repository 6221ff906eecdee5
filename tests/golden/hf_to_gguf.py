"""Writes a Hugging Face checkpoint of a dense family (llama, mistral, qwen2, qwen3) as GGUF, for tests.

usage: hf_to_gguf.py MODEL_DIR OUT.gguf [--type f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1] [--parts N] [--vocab]

Needs numpy and gguf only. As converters do: arch llama (and mistral, which is stored as llama) gets the rows of Q and K
permuted so that rotated pairs are adjacent; llama3 scaling becomes the tensor rope_freqs.weight; vectors stay F32. A
matrix whose rows are no multiple of the type's block is stored as F16. --parts N splits the tensors over N files,
OUT-00001-of-0000N.gguf and so on. --vocab adds a byte-level tokenizer, for programs that ask for one.
"""
import argparse
import json
import math
import pathlib

import gguf
import numpy as np

TYPES = {name: getattr(gguf.GGMLQuantizationType, name.upper())
         for name in ('f32', 'f16', 'bf16', 'q8_0', 'q4_0', 'q4_1', 'q5_0', 'q5_1')}
OUTSIDE = {'model.embed_tokens': 'token_embd', 'model.norm': 'output_norm', 'lm_head': 'output'}
IN_LAYER = {'input_layernorm': 'attn_norm', 'post_attention_layernorm': 'ffn_norm', 'self_attn.q_proj': 'attn_q',
            'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output',
            'self_attn.q_norm': 'attn_q_norm', 'self_attn.k_norm': 'attn_k_norm', 'mlp.gate_proj': 'ffn_gate',
            'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down'}


def read_safetensors(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], 'little')
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    for name, entry in header.items():
        if name == '__metadata__':
            continue
        raw = body[slice(*entry['data_offsets'])]
        if entry['dtype'] == 'BF16':
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {'F32': np.float32, 'F16': np.float16}[entry['dtype']]).astype(np.float32)
        yield name, values.reshape(entry['shape'])


def gguf_name(name):
    stem, field = name.rsplit('.', 1)
    if stem in OUTSIDE:
        return f'{OUTSIDE[stem]}.{field}'
    _, _, layer, part = stem.split('.', 3)
    return f'blk.{layer}.{IN_LAYER[part]}.{field}'


def make_adjacent(values, heads):
    """Rows of each head from (first half, second half) to alternating; biases have one column."""
    rows = values.shape[0]
    return values.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(values.shape)


def rope_of(config):
    scaling = dict(config.get('rope_parameters') or config.get('rope_scaling') or {})
    theta = scaling.get('rope_theta', config.get('rope_theta', 10000.0))
    return scaling.get('rope_type', scaling.get('type', 'default')), theta, scaling


def llama3_divisors(theta, head_dim, scaling):
    wavelength = 2 * math.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    low, high, factor = scaling['low_freq_factor'], scaling['high_freq_factor'], scaling['factor']
    original = scaling['original_max_position_embeddings']
    smooth = (original / wavelength - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    return np.where(wavelength < original / high, 1.0,
                    np.where(wavelength > original / low, factor, between)).astype(np.float32)


def write_rope(writer, config, head_dim):
    """Keys of the scaling; returns the tensor of divisors if the kind has one."""
    kind, theta, scaling = rope_of(config)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(theta)
    if kind == 'llama3':
        return llama3_divisors(theta, head_dim, scaling)
    if kind == 'linear':
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling['factor'])
    elif kind == 'yarn':
        factor = scaling['factor']
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(factor)
        writer.add_rope_scaling_orig_ctx_len(scaling['original_max_position_embeddings'])
        if scaling.get('attention_factor') is not None:  # the reader multiplies by what the factor recommends
            writer.add_rope_scaling_attn_factors(scaling['attention_factor'] / (1 + 0.1 * math.log(factor)))
    elif kind != 'default':
        raise SystemExit(f'RoPE scaling {kind} has no GGUF form here')
    return None


def write_config(writer, config, head_dim):
    writer.add_name('converted')
    writer.add_block_count(config['num_hidden_layers'])
    writer.add_context_length(config['max_position_embeddings'])
    writer.add_embedding_length(config['hidden_size'])
    writer.add_feed_forward_length(config['intermediate_size'])
    writer.add_head_count(config['num_attention_heads'])
    writer.add_head_count_kv(config['num_key_value_heads'])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config['rms_norm_eps'])
    writer.add_vocab_size(config['vocab_size'])
    if config.get('sliding_window') and config['model_type'] == 'mistral':
        writer.add_sliding_window(config['sliding_window'])


def write_vocab(writer, size):
    """Three control tokens, the 256 bytes in GPT-2's spelling, one merge, fillers."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    spelling = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    tokens = ['<|endoftext|>', '<|im_start|>', '<|im_end|>', *(spelling[b] for b in range(256)), 'he']
    tokens += [f'\u0120w{i}' for i in range(len(tokens), size)]
    writer.add_tokenizer_model('gpt2')
    writer.add_tokenizer_pre('smollm')
    writer.add_token_list(tokens[:size])
    writer.add_token_types([3 if i < 3 else 1 for i in range(size)])
    writer.add_token_merges(['h e'])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def add_tensor(writer, name, values, kind, decoded):
    if values.ndim == 1:
        kind = TYPES['f32']
    elif values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] != 0:
        kind = TYPES['f16']
    data = gguf.quants.quantize(np.ascontiguousarray(values), kind)
    if decoded:
        data, kind = gguf.quants.dequantize(data, kind).astype(np.float32), TYPES['f32']
    writer.add_tensor(name, data, raw_dtype=kind)


def convert(folder, out, kind='f32', parts=1, vocab=False, decoded=False):
    """Returns the path of the file or of its first part. With `decoded` every tensor is F32, holding what `kind` keeps."""
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    config = json.loads((folder / 'config.json').read_text())
    arch = 'llama' if config['model_type'] == 'mistral' else config['model_type']
    heads = {'q': config['num_attention_heads'], 'k': config['num_key_value_heads']}
    head_dim = config.get('head_dim') or config['hidden_size'] // heads['q']
    tensors = {}
    for path in sorted(folder.glob('*.safetensors')):
        for name, values in read_safetensors(path):
            for side, count in heads.items():
                if arch == 'llama' and f'self_attn.{side}_proj' in name:
                    values = make_adjacent(values, count)
            tensors[gguf_name(name)] = values
    names = list(tensors)
    for part in range(parts):
        path = out if parts == 1 else out.with_name(f'{out.stem}-{part + 1:05}-of-{parts:05}.gguf')
        writer = gguf.GGUFWriter(path, arch)
        if parts > 1:
            writer.add_uint16('split.no', part)
            writer.add_uint16('split.count', parts)
        if part == 0:
            write_config(writer, config, head_dim)
            divisors = write_rope(writer, config, head_dim)
            if vocab:
                write_vocab(writer, config['vocab_size'])
            if divisors is not None:
                writer.add_tensor('rope_freqs.weight', divisors)
        for name in names[part::parts]:
            add_tensor(writer, name, tensors[name], TYPES[kind], decoded)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return out if parts == 1 else out.with_name(f'{out.stem}-00001-of-{parts:05}.gguf')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('folder')
    parser.add_argument('out')
    parser.add_argument('--type', choices=TYPES, default='f32')
    parser.add_argument('--parts', type=int, default=1)
    parser.add_argument('--vocab', action='store_true')
    args = parser.parse_args()
    print(convert(args.folder, args.out, args.type, args.parts, args.vocab))


if __name__ == '__main__':
    main()
