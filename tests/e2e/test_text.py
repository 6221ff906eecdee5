"""Stop strings and characters of several tokens: bug reports B401 and B403."""
import itertools
import random

import pytest
from serving import Server

SCRIPT = ["alpha", " be", "ta ga", "mma del", "ta"]
STOPS = [["ta"], ["a ga"], ["beta"], [" gamma"], ["m"], ["ha b"], ["never"], ["ta", "m"], ["mma delta", " ga"],
         ["delta", "gamma del"], ["alpha"], ["a"], ["eta ga", "beta ", "lpha"], "ta gam"]


@pytest.fixture(scope="module")
def chain_server(tiny, logs):
    model = tiny.chain("greek", SCRIPT)
    with Server(model, "--kv-cache-memory-bytes", "16MiB", logs=logs) as server:
        server.script_ids = tiny.script_ids(model)
        yield server


def cut(text, stop, keep=False):
    """The text before the earliest match of any stop string, and whether there is one."""
    stops = [stop] if isinstance(stop, str) else stop
    hits = sorted((text.index(s), s) for s in stops if s in text)
    if not hits:
        return text, None
    position, found = hits[0]
    return text[:position + (len(found) if keep else 0)], found


def tokens_until(text_length):
    """How many tokens of the script cover that many characters."""
    ends = list(itertools.accumulate(map(len, SCRIPT)))
    return next(i + 1 for i, end in enumerate(ends) if end >= text_length)


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("kind", ["completions", "chat"])
def test_stop_strings(chain_server, stop, kind):
    """B401: the text ends right before the earliest match, whether streamed or not."""
    full = "".join(SCRIPT)
    expected, found = cut(full, stop)
    call, stream = ((chain_server.complete, chain_server.stream_complete) if kind == "completions"
                    else (chain_server.chat, chain_server.stream_chat))
    answer = call("hello", stop=stop, max_tokens=50)
    choice = answer["choices"][0]
    text = choice["text"] if kind == "completions" else choice["message"]["content"]
    assert text == expected
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] == found
    if found:
        assert answer["usage"]["completion_tokens"] == tokens_until(full.index(found) + len(found))
    else:
        assert answer["usage"]["completion_tokens"] == len(SCRIPT) + 1  # and the end token
    streamed = stream("hello", stop=stop, max_tokens=50, stream_options={"include_usage": True})
    assert streamed.text() == expected
    assert streamed.finish == {0: "stop"} and streamed.stop_reason == {0: found}
    assert streamed.chunks[-1]["usage"] == answer["usage"]


@pytest.mark.parametrize("stop", STOPS, ids=str)
def test_stop_string_kept_on_request(chain_server, stop):
    expected, _ = cut("".join(SCRIPT), stop, keep=True)
    fields = {"stop": stop, "include_stop_str_in_output": True, "max_tokens": 50}
    assert chain_server.complete("hello", **fields)["choices"][0]["text"] == expected
    assert chain_server.stream_complete("hello", **fields).text() == expected


def test_stop_token(chain_server):
    third = chain_server.script_ids[2]
    choice = chain_server.complete("hello", stop_token_ids=[third], max_tokens=50)["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["stop_reason"] == third
    assert choice["text"].startswith("alpha be") and "mma" not in choice["text"]


def test_min_tokens_holds_off_stops(chain_server):
    choice = chain_server.complete("hello", stop=["alpha"], min_tokens=3, max_tokens=4)["choices"][0]
    assert choice["text"] == "alpha beta gamma del" and choice["finish_reason"] == "length"


def test_ignore_eos(chain_server):
    """Without ignore_eos the script ends; with it the model goes on to max_tokens."""
    plain = chain_server.complete("hello", max_tokens=12)
    assert plain["choices"][0]["finish_reason"] == "stop" and plain["usage"]["completion_tokens"] == 6
    longer = chain_server.complete("hello", max_tokens=12, ignore_eos=True)
    assert longer["choices"][0]["finish_reason"] == "length" and longer["usage"]["completion_tokens"] == 12
    assert longer["choices"][0]["text"].startswith("".join(SCRIPT) + "alpha")


# Decomposed: e and a combining accent. Each byte is a token of its own.
HARD_TEXTS = {"Japanese": "日本語", "Korean": "한국어", "emoji": "😀!", "family": "👩‍👩‍👧", "accent": "cafe\u0301",
              "Czech": "řeč"}


@pytest.mark.parametrize("name", HARD_TEXTS)
def test_characters_of_several_tokens(tiny, serve, name):
    """B403: no replacement character in any delta, and the deltas add up."""
    text = HARD_TEXTS[name]
    # A piece must not repeat, so bytes that repeat join their neighbour.
    pieces = []
    for byte in text.encode():
        piece = bytes([byte])
        while piece in pieces:
            piece = pieces.pop() + piece
        pieces.append(piece)
    assert len(pieces) > len(text), "some character spans tokens"
    server = serve(tiny.chain(f"utf8-{name}", pieces), "--kv-cache-memory-bytes", "4MiB")
    assert server.complete("hello", max_tokens=64)["choices"][0]["text"] == text
    for streamed in (server.stream_complete("hello", max_tokens=64), server.stream_chat("hello", max_tokens=64)):
        assert streamed.text() == text
        assert "\ufffd" not in "".join(streamed.deltas[0])
    for limit in range(1, len(pieces)):
        # A character cut off by max_tokens: the same in both modes, and nothing after it.
        whole = server.complete("hello", max_tokens=limit)["choices"][0]["text"]
        assert server.stream_complete("hello", max_tokens=limit).text() == whole
        assert text.startswith(whole.rstrip("\ufffd"))


def random_pieces(rng):
    """Text with random borders between bytes, now and then with bytes that are no UTF-8."""
    alphabet = "aß日한😀é\u0301 \n\"\\{"
    data = "".join(rng.choice(alphabet) for _ in range(rng.randint(8, 40))).encode()
    if rng.random() < 0.3:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.choice([0xff, 0xc3, 0xe3, 0x80])]) + data[at:]
    pieces, begin = [], 0
    while begin < len(data):
        size = rng.randint(1, 4)
        while size < 12 and (data[begin:begin + size] in pieces or data[begin:begin + size] == b"\n"):
            size += 1
        piece = data[begin:begin + size]
        if piece in pieces or piece == b"\n":
            break
        pieces.append(piece)
        begin += size
    return pieces


def test_random_borders(tiny, logs):
    """B403, fuzzed: stream and non-stream equal Python's decoder, for text cut at any byte."""
    rng = random.Random(403)
    invalid = 0
    for case in range(20):
        pieces = random_pieces(rng)
        data = b"".join(pieces)
        expected = data.decode("utf-8", errors="replace")
        invalid += "\ufffd" in expected
        model = tiny.chain(f"fuzz-{case}", pieces)
        with Server(model, "--kv-cache-memory-bytes", "4MiB", logs=logs) as server:
            for limit in (200, len(pieces) // 2):
                whole = server.complete("hello", max_tokens=limit)["choices"][0]
                streamed = server.stream_complete("hello", max_tokens=limit)
                assert streamed.text() == whole["text"], pieces
                assert streamed.finish[0] == whole["finish_reason"]
            assert server.complete("hello", max_tokens=200)["choices"][0]["text"] == expected, pieces
    assert invalid, "some case holds bytes that are no UTF-8"
