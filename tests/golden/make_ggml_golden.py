"""Golden data for src/quant/ggml_blocks from the Python package gguf (0.19): ggml_blocks.txt.

usage: make_ggml_golden.py > tests/golden/ggml_blocks.txt

Each line is one block: FORMAT KIND VALUES BYTES DECODED, all three in hexadecimal, little-endian;
VALUES are float32 and '-' if KIND is 'raw' (bytes that no encoder made: subnormal, negative and
huge scales, every nibble; the only kind for the K formats, which gguf cannot encode), DECODED is gguf.quants.dequantize(BYTES) as float32.
Read by src/quant/ggml_blocks_test.cc.
"""
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quantize


def values(rng):
    yield rng.standard_normal(32) * 0.3
    yield np.zeros(32)
    yield np.full(32, -1.25)
    yield np.concatenate([np.arange(-16, 16) / 8.0])  # many ties of rounding
    yield rng.standard_normal(32) * 1e-6  # subnormal fp16 scale


def raw_blocks(rng, size, scales):
    for scale in (0x0001, 0x83ff, 0x2e66, 0xbc00, 0x7bff):
        block = rng.integers(0, 256, size).astype(np.uint8)
        for i in range(scales):
            block[2 * i:2 * i + 2] = np.array([scale ^ (i * 0x0401)], np.uint16).view(np.uint8)
        yield block


def raw_k_blocks(rng, size, scale_at):
    for scale in (0x0001, 0xae66, 0x7bff):
        block = rng.integers(0, 256, size).astype(np.uint8)
        for i, at in enumerate(scale_at):
            block[at:at + 2] = np.array([scale ^ (i * 0x0401)], np.uint16).view(np.uint8)
        yield block


def line(name, kind, x, block, kind_type):
    shown = '-' if x is None else x.astype(np.float32).tobytes().hex()
    decoded = dequantize(block.view(np.uint8).reshape(1, -1), kind_type).astype(np.float32)
    print(name, kind, shown, block.tobytes().hex(), decoded.tobytes().hex())


def main():
    rng = np.random.default_rng(611)
    for name, t, size, scales in (('q8_0', T.Q8_0, 34, 1), ('q4_0', T.Q4_0, 18, 1),
                                  ('q4_1', T.Q4_1, 20, 2), ('f16', T.F16, 64, 0),
                                  ('bf16', T.BF16, 64, 0)):
        for x in values(rng):
            x = x.astype(np.float32)
            line(name, 'coded', x, quantize(x.reshape(1, -1), t).reshape(-1), t)
        if scales:
            for block in raw_blocks(rng, size, scales):
                line(name, 'raw', None, block, t)
    for name, t, size, scales in (('q5_0', T.Q5_0, 22, 1), ('q5_1', T.Q5_1, 24, 2)):
        for x in values(rng):
            x = x.astype(np.float32)
            line(name, 'coded', x, quantize(x.reshape(1, -1), t).reshape(-1), t)
        for block in raw_blocks(rng, size, scales):
            line(name, 'raw', None, block, t)
    for name, t, size, scale_at in (('q4_k', T.Q4_K, 144, (0, 2)), ('q5_k', T.Q5_K, 176, (0, 2)),
                                    ('q6_k', T.Q6_K, 210, (208,))):
        for block in raw_k_blocks(rng, size, scale_at):
            line(name, 'raw', None, block, t)


main()
