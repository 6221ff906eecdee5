"""Golden data for src/model/rope: rope.txt, inverse frequencies of every kind of RoPE scaling.

usage: make_rope_golden.py > tests/golden/rope.txt

Written from the formulas (docs of transformers 5, modeling_rope_utils), in double precision and without transformers, so
that it is a second opinion. Each line: KEYS of config.json as JSON, the attention factor, the frequencies; separated by
tabs. Read by src/model/rope_test.cc.
"""
import json

import numpy as np


def frequencies(theta, dim, scaling, max_position, outer_original):
    base = float(theta) ** (-np.arange(0, dim, 2) / dim)
    kind = scaling.get('rope_type', scaling.get('type', 'default'))
    original = outer_original or scaling.get('original_max_position_embeddings', max_position)
    if kind == 'default':
        return base, 1.0
    factor = scaling['factor'] if scaling['factor'] is not None else max_position / original
    if kind == 'linear':
        return base / factor, 1.0
    if kind == 'llama3':
        low, high = scaling['low_freq_factor'], scaling['high_freq_factor']
        wavelength = 2 * np.pi / base
        s = (original / wavelength - low) / (high - low)
        between = (1 - s) * base / factor + s * base
        return np.where(wavelength < original / high, base,
                        np.where(wavelength > original / low, base / factor, between)), 1.0
    assert kind == 'yarn'

    def dimension(turns):
        return dim * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(theta))

    def magnitude(mscale):
        return 1.0 if factor <= 1 else 0.1 * mscale * np.log(factor) + 1

    low = dimension(scaling.get('beta_fast') or 32)
    high = dimension(scaling.get('beta_slow') or 1)
    if scaling.get('truncate', True):
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    attention = scaling.get('attention_factor')
    if attention is None:
        both = scaling.get('mscale') and scaling.get('mscale_all_dim')
        attention = magnitude(scaling['mscale']) / magnitude(scaling['mscale_all_dim']) if both else magnitude(1)
    return base / factor * ramp + base * (1 - ramp), attention


LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
CASES = [  # theta, head_dim, max_position, name of the object, the object, outer original_max_position_embeddings
    (1e4, 64, 2048, 'rope_parameters', dict(rope_type='default'), None),
    (1e6, 128, 32768, 'rope_scaling', None, None),
    (1e4, 16, 256, 'rope_parameters', dict(rope_type='linear', factor=4.0), None),
    (1e4, 128, 16384, 'rope_scaling', dict(type='linear', factor=2.5), None),
    (5e5, 128, 131072, 'rope_scaling', dict(rope_type='llama3', **LLAMA3), None),
    (5e5, 128, 131072, 'rope_scaling', dict(type='llama3', **LLAMA3), None),
    (5e5, 64, 131072, 'rope_parameters', dict(rope_type='llama3', **{**LLAMA3, 'factor': 32.0}), None),
    (1e4, 16, 512, 'rope_scaling', dict(type='llama3', **{**LLAMA3, 'original_max_position_embeddings': 64}), None),
    (1e4, 16, 256, 'rope_parameters', dict(rope_type='yarn', factor=4.0, original_max_position_embeddings=64), None),
    (1e6, 128, 32768, 'rope_scaling', dict(type='yarn', factor=4.0, original_max_position_embeddings=32768), None),
    (1e6, 128, 32768, 'rope_scaling', dict(type='yarn', factor=4.0), None),
    (1e6, 128, 131072, 'rope_scaling', dict(type='yarn', factor=4.0), 32768),
    (1e4, 64, 163840, 'rope_scaling', dict(type='yarn', factor=None, original_max_position_embeddings=4096), None),
    (1e4, 64, 163840, 'rope_scaling', dict(type='yarn', factor=40, original_max_position_embeddings=4096, beta_fast=32,
                                           beta_slow=1, mscale=1.0, mscale_all_dim=0.8), None),
    (5e4, 64, 131072, 'rope_scaling', dict(type='yarn', factor=32.0, original_max_position_embeddings=4096, beta_fast=1.0,
                                           beta_slow=1.0, mscale=1.0, mscale_all_dim=0), None),
    (15e4, 64, 131072, 'rope_parameters', dict(rope_type='yarn', factor=32.0, original_max_position_embeddings=4096,
                                               truncate=False, attention_factor=1.25), None),
    (1e4, 32, 512, 'rope_parameters', dict(rope_type='yarn', factor=0.5, original_max_position_embeddings=1024), None),
]


def main():
    for theta, dim, max_position, name, scaling, outer in CASES:
        keys = {'head_dim': dim, 'max_position_embeddings': max_position}
        if name == 'rope_scaling':
            keys |= {'rope_theta': theta, 'rope_scaling': scaling}
        else:
            keys |= {'rope_theta': 1.5, 'rope_parameters': {**scaling, 'rope_theta': theta}}  # the inner one counts
        if outer:
            keys['original_max_position_embeddings'] = outer
        values, attention = frequencies(theta, dim, scaling or {}, max_position, outer)
        print(json.dumps(keys), f'{attention:.9g}', ' '.join(f'{v:.9g}' for v in values), sep='\t')


main()
