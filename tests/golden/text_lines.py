"""Lines that tokenizers get wrong: mixed scripts, emoji, odd white space, control characters, long
runs. The same lines at every run."""

import random
import unicodedata

SCRIPTS = {
    "latin": (0x41, 0x17F), "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x4FF), "armenian": (0x531, 0x58F),
    "hebrew": (0x5D0, 0x5EA), "arabic": (0x620, 0x6D3), "devanagari": (0x900, 0x97F), "bengali": (0x980, 0x9FE),
    "tamil": (0xB82, 0xBFA), "thai": (0xE01, 0xE5B), "tibetan": (0xF00, 0xFD4), "georgian": (0x10A0, 0x10FF),
    "hangul_jamo": (0x1100, 0x11FF), "khmer": (0x1780, 0x17F9), "kana": (0x3041, 0x30FF), "han": (0x4E00, 0x9FA5),
    "hangul": (0xAC00, 0xD7A3), "ethiopic": (0x1200, 0x137C), "gothic": (0x10330, 0x1034A),
    "deseret": (0x10400, 0x1044F), "emoji": (0x1F300, 0x1F64F), "math": (0x1D400, 0x1D4FF),
    "fullwidth": (0xFF01, 0xFFEE), "symbols": (0x2000, 0x2BFF),
}
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\u200b", "\u202f", "\x0b", "\x0c",
          "\x85", "\u2028", "\u180e", "   \n", " \n ", "\n\n", "\t\t"]
EMOJI = ["😀", "👨‍👩‍👧", "🏳️‍🌈", "👍🏽", "🇩🇪", "☃️", "e\u0301", "n\u0303", "\u0301", "a\u0323\u0307", "\ufb01",
         "Å", "ﷺ", "½", "Ⅷ", "²", "İ", "ẞ", "ſ", "ǅ", "\ufeff", "\ufffd", "\u200d", "\u00ad"]
SNIPPETS = ["don't", "I'LL", "we've", "it's", "'s", "’s", "O'Brien", "x'DX", "<|im_end|>", "<s>", "</s>", "<unk>",
            "<0x41>", "<0xFF>", "<pad>", "<tool_call>", "</tool_call>", "<tool_call", "▁", "▁▁", "a▁b", "Ġ", "ĠĠ",
            "<|begin_of_text|>", "user", "def f(x):\n\treturn x**2", "http://a.b/c?d=e&f=%20", "{\"a\": [1, 2]}",
            "3.14159", "1234567890", "１２３", "٣٤٥", "C++", "...", "!!!", "---", "a_b", "A", "ÀÉÎ", "STRASSE", "<sep>",
            "$100", "€5", "50%", "#tag", "@me", "\\n", "`code`", "~", "^", "|", "foo bar", "<|x|>"]



def characters():
    """Assigned in Unicode 12, so that every library knows them."""
    old = unicodedata.ucd_3_2_0
    pools = {}
    for name, (low, high) in SCRIPTS.items():
        codes = [code for code in range(low, high + 1) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
        known = [code for code in codes if old.category(chr(code)) != "Cn"]
        pools[name] = [chr(code) for code in (known or codes)]
    return pools


def one(rng, pools):
    kind = rng.random()
    if kind < 0.30:
        pool = pools[rng.choice(list(pools))]
        return "".join(rng.choice(pool) for _ in range(rng.randint(1, 12)))
    if kind < 0.50:
        return rng.choice(SNIPPETS)
    if kind < 0.62:
        return rng.choice(EMOJI)
    if kind < 0.80:
        return rng.choice(SPACES)
    if kind < 0.88:
        return rng.choice([str(rng.randrange(10 ** rng.randint(1, 30))), rng.choice("0123456789") * rng.randint(1, 40)])
    if kind < 0.92:
        return chr(rng.randrange(1, 32))
    return " " + rng.choice(["the", "and", "Hello", "WORLD", "größe", "мир", "日本", "안녕", "int", "return"])


def lines(count=10_000):
    rng = random.Random(4711)
    pools = characters()
    made = ["", " ", "  ", "\n", "\r\n", "a", " a", "a ", "user", " user", "\tuser", "\0", "a\0b"]
    made += [rng.choice([" ", "a", "0", "\n", "語", "!", "é", "\u0301", "👍"]) * n for n in (2, 17, 100, 1000)
             for _ in range(6)]
    while len(made) < count:
        made.append("".join(one(rng, pools) for _ in range(rng.randint(1, 14))))
    return made[:count]
