"""The tokenizer that transformers builds from a GGUF file, without torch: its own reader needs that."""

import gguf
from transformers.integrations.gguf import gguf_tokenizer_mapping as mapping


def tokenizer_of(path):
    reader = gguf.GGUFReader(str(path))
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    described = {name: metadata[f"tokenizer.{key}"]
                 for key, name in mapping.GGUF_TOKENIZER_MAPPING["tokenizer"].items()
                 if f"tokenizer.{key}" in metadata}
    tokenizer, _ = mapping.convert_gguf_tokenizer(metadata["general.architecture"], described)
    return tokenizer
