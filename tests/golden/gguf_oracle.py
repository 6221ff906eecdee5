"""The tokenizer that transformers builds from a GGUF file, without torch: its own reader needs that."""

import struct

from transformers.integrations.gguf import gguf_tokenizer_mapping as mapping

NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


class Metadata:
    """The keys of a GGUF v3 file. (gguf's own reader takes ten seconds for a vocabulary of 128,000.)"""

    def __init__(self, data):
        self.data, self.at = data, 8
        assert data[:4] == b"GGUF"
        self.number("<Q")  # tensors
        self.values = {}
        for _ in range(self.number("<Q")):
            key = self.string()
            self.values[key] = self.value(self.number("<I"))

    def number(self, form):
        value, = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        length = self.number("<Q")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.number(NUMBERS[kind])
        kind, count = self.number("<I"), self.number("<Q")
        return [self.value(kind) for _ in range(count)]


def tokenizer_of(path):
    metadata = Metadata(path.read_bytes()).values
    described = {name: metadata[f"tokenizer.{key}"]
                 for key, name in mapping.GGUF_TOKENIZER_MAPPING["tokenizer"].items()
                 if f"tokenizer.{key}" in metadata}
    tokenizer, _ = mapping.convert_gguf_tokenizer(metadata["general.architecture"], described)
    return tokenizer
