"""Errors in the form that the OpenAI clients parse, and requests for what is not built: 400, never an answer that
quietly left the wish out (bug reports B418 and B420)."""
import pytest
from serving import Server, wait_until

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "temperature": 0}
COMPLETION = {"prompt": "hello", "max_tokens": 4, "temperature": 0}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def check_error(answer, status):
    assert answer.status == status, answer.body
    assert answer.headers["Content-Type"].startswith("application/json")
    error = answer.error
    assert set(error) == {"message", "type", "param", "code"}, error
    assert error["code"] == status and error["message"] and error["type"]
    return error


# Fields whose silent loss would give an unconstrained or wrong answer, and what the message must name.
NOT_BUILT_CHAT = [
    ({"tools": [TOOL], "tool_choice": "required"}, "tool"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look_up"}}}, "tool"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "absent"}}}, "tool"),
    ({"tools": [TOOL], "tool_choice": "auto"}, "tool"),
    ({"tools": [TOOL]}, "tool"),
    ({"tool_choice": "required"}, "tool"),
    ({"functions": [TOOL["function"]], "function_call": {"name": "look_up"}}, "function"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, "response_format"),
    ({"response_format": {"type": "structural_tag"}}, "response_format"),
    ({"response_format": {"type": "nonsense"}}, "response_format"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]}, "image"),
    ({"modalities": ["text", "audio"], "audio": {"voice": "x", "format": "wav"}}, ""),
]
NOT_BUILT_BOTH = [
    ({"guided_json": SCHEMA}, "guided_json"),
    ({"guided_json": {}}, "guided_json"),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"guided_regex": "a+"}, "guided_regex"),
    ({"guided_choice": ["a", "b"]}, "guided_choice"),
    ({"guided_grammar": "root ::= \"a\""}, "guided_grammar"),
    ({"structured_outputs": {"json": SCHEMA}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
    ({"structured_outputs": {"choice": ["a", "b"]}}, "structured_outputs"),
    ({"use_beam_search": True}, "use_beam_search"),
    ({"best_of": 3}, "best_of"),
]
NOT_BUILT_COMPLETION = [
    ({"suffix": "tail"}, "suffix"),
    ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
]


@pytest.mark.parametrize("path, body, fields, named", [
    *[("/v1/chat/completions", CHAT, *case) for case in NOT_BUILT_CHAT + NOT_BUILT_BOTH],
    *[("/v1/completions", COMPLETION, *case) for case in NOT_BUILT_COMPLETION + NOT_BUILT_BOTH]], ids=str)
def test_not_built_is_refused(rand_server, path, body, fields, named):
    generated = rand_server.metric("generation_tokens_total")
    for stream in (False, True):
        error = check_error(rand_server.post(path, body | fields | {"stream": stream}), 400)
        assert named in error["message"] + str(error["param"]), error
    assert rand_server.metric("generation_tokens_total") == generated, "nothing ran"


@pytest.mark.parametrize("fields", [
    {"response_format": {"type": "text"}}, {"response_format": None}, {"tools": None}, {"tools": [], "tool_choice": "none"},
    {"tools": [TOOL], "tool_choice": "none"}, {"guided_json": None}, {"structured_outputs": None}, {"user": "me"},
    {"unknown_to_all": 1}, {"use_beam_search": False}, {"parallel_tool_calls": True}, {"logit_bias": None},
    {"stop": None}, {"seed": None}, {"max_tokens": None, "max_completion_tokens": 4}], ids=str)
def test_harmless_fields_are_taken(rand_server, fields):
    answer = rand_server.ok("/v1/chat/completions", CHAT | fields)
    assert answer["usage"]["completion_tokens"] == 4 and "tool_calls" not in answer["choices"][0]["message"]


def test_accepted_constraints_are_kept(rand_server):
    """allowed_token_ids and bad_words either work or are refused."""
    allowed = [300, 301, 302]
    answer = rand_server.post("/v1/completions", COMPLETION | {"allowed_token_ids": allowed, "return_token_ids": True,
                                                               "max_tokens": 16})
    if answer.status == 200:
        assert set(answer.json["choices"][0]["token_ids"]) <= set(allowed)
    else:
        assert "allowed_token_ids" in check_error(answer, 400)["message"]
    text = rand_server.complete("hello", max_tokens=16)["choices"][0]["text"]
    word = text.split(" ")[1]
    answer = rand_server.post("/v1/completions", COMPLETION | {"bad_words": [word], "max_tokens": 16})
    if answer.status == 200:
        assert word not in answer.json["choices"][0]["text"]
    else:
        assert "bad_words" in check_error(answer, 400)["message"]


WRONG = [
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -1}, "max_tokens"), ({"max_tokens": "many"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"), ({"n": 0}, "n"), ({"n": -1}, "n"), ({"n": 10**9}, "n"),
    ({"temperature": -1}, "temperature"), ({"temperature": "hot"}, "temperature"), ({"temperature": 1e400}, ""),
    ({"top_p": 0}, "top_p"), ({"top_p": 1.1}, "top_p"), ({"top_k": -2}, "top_k"), ({"min_p": 2}, "min_p"),
    ({"presence_penalty": 3}, "presence_penalty"), ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"), ({"seed": "one"}, "seed"), ({"stop": 5}, "stop"),
    ({"stop": [""]}, "stop"), ({"stop": [5]}, "stop"), ({"min_tokens": 9}, "min_tokens"), ({"stream": "yes"}, "stream"),
    ({"logit_bias": {"abc": 1}}, "logit_bias"), ({"logit_bias": {"300": 101}}, "logit_bias"),
    ({"logit_bias": {"512": 1}}, "logit_bias"), ({"stop_token_ids": [512]}, ""), ({"priority": "high"}, "priority"),
    ({"stream": True, "stream_options": "all"}, "stream_options"), ({"ignore_eos": "x"}, "ignore_eos"),
    ({"stop_token_ids": "x"}, "stop_token_ids"),
]
WRONG_COMPLETION = [({"prompt": 5}, "prompt"), ({"prompt": {"a": 1}}, "prompt"), ({"prompt": [512]}, "512"),
                    ({"prompt": [-1]}, "prompt"), ({"prompt": [1, "a"]}, "prompt"), ({"logprobs": -1}, "logprobs"),
                    ({"logprobs": True}, "logprobs"), ({"echo": "x"}, "echo"), ({"prompt": [2**40]}, "prompt")]
WRONG_CHAT = [({"messages": "hello"}, "messages"), ({"messages": [{"content": "x"}]}, "role"),
              ({"messages": ["hello"]}, "messages"), ({"messages": [{"role": "user", "content": 5}]}, "content"),
              ({"logprobs": 5}, "logprobs"), ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
              ({"max_completion_tokens": 0}, "max_completion_tokens"),
              ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text")]


@pytest.mark.parametrize("path, body, fields, named", [
    *[("/v1/chat/completions", CHAT, *case) for case in WRONG + WRONG_CHAT],
    *[("/v1/completions", COMPLETION, *case) for case in WRONG + WRONG_COMPLETION]], ids=str)
def test_wrong_values(rand_server, path, body, fields, named):
    """400, not 422, and the field's name in the message or as param."""
    answer = rand_server.post(path, body | fields)
    if fields == {"max_tokens": 0} and path == "/v1/completions":
        assert answer.status in (200, 400)  # with echo it is a request for the prompt's logprobs
        return
    if fields.get("stop") == [""] and answer.status == 200:
        return  # nothing to stop at
    error = check_error(answer, 400)
    assert named in error["message"] + str(error["param"]), error


BROKEN = ["", "{", "[]", "5", "null", "hello", '{"prompt": "hello"', '{"prompt": "hello"} x', '{"prompt": "\xff"}'.encode("latin1"),
          '{"prompt": "hello", "max_tokens": NaN}', '{"prompt": "\\ud800"}', "[" * 100000, '{"a":' * 5000 + "1" + "}" * 5000]


@pytest.mark.parametrize("body", BROKEN, ids=lambda body: repr(body[:24]))
def test_broken_json(rand_server, body):
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        check_error(rand_server.request("POST", path, body), 400)
    assert rand_server.get("/health").status == 200


def test_content_type_must_be_json(rand_server):
    answer = rand_server.post("/v1/completions", COMPLETION, headers={"Content-Type": "text/plain"})
    check_error(answer, 400)


def test_unknown_model_route_and_method(rand_server):
    error = check_error(rand_server.post("/v1/completions", COMPLETION | {"model": "gpt-9"}), 404)
    assert error["type"] == "NotFoundError" and error["param"] == "model"
    assert error["message"].startswith("The model `gpt-9` does not exist.") and "rand" in error["message"]
    check_error(rand_server.get("/v1/nothing"), 404)
    check_error(rand_server.get("/v1/completions"), 405)
    check_error(rand_server.post("/v1/models", {}), 405)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/audio/transcriptions", "/rerank",
                                  "/v1/load_lora_adapter"])
def test_endpoints_that_are_not_built(rand_server, path):
    """A clear refusal: 404 or 501, in the usual form."""
    answer = rand_server.post(path, {"input": "hello"})
    check_error(answer, 501 if answer.status == 501 else 404)


def test_api_keys(tiny, serve):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "1MiB", "--api-key", "one", "--api-key", "two")
    for headers in ({}, {"Authorization": "Bearer three"}, {"Authorization": "one"}, {"Authorization": "Bearer "},
                    {"Authorization": "Bearer onetwo"}):
        for method, path in (("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("GET", "/v1/models"),
                             ("POST", "/tokenize")):
            if path == "/tokenize" and server.request(method, path, {"prompt": "x"}, headers).status == 200:
                continue  # vLLM guards /v1 only
            error = check_error(server.request(method, path, COMPLETION if method == "POST" else None, headers), 401)
            assert "three" not in error["message"]
    for key in ("one", "two"):
        assert server.post("/v1/completions", COMPLETION, headers={"Authorization": f"Bearer {key}"}).status == 200
    assert server.get("/health").status == 200 and server.get("/metrics").status == 200


def test_full_queue(tiny, serve):
    """503 with Retry-After when too many wait; those that were taken are answered."""
    model = tiny.chain("endless", ["alpha", " be", "ta ga", "mma del", "ta"], loop_to=0, context=131072)
    server = serve(model, "--kv-cache-memory-bytes", "64MiB", "--max-num-seqs", "1", "--max-num-queued-reqs", "2")
    body = COMPLETION | {"max_tokens": 100000}
    sockets = [server.raw("/v1/completions", body | {"max_tokens": 3000}) for _ in range(2)]
    sockets.insert(0, server.raw("/v1/completions", body))
    wait_until(lambda: server.metric("num_requests_waiting") == 2 and server.metric("num_requests_running") == 1, 10,
               "one runs and two wait")
    for stream in (False, True):
        answer = server.post("/v1/completions", body | {"stream": stream})
        check_error(answer, 503)
        assert int(answer.headers["Retry-After"]) >= 1
    sockets.pop(0).close()
    for connection in sockets:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.close()


@pytest.mark.parametrize("tokenizer_size", [505, 513])
def test_tokens_outside_the_vocabulary(tiny, logs, tokenizer_size):
    """B614: a padded embedding never gives an id without text; a tokenizer that is larger is refused or survives."""
    flat = tiny.flat(f"padded-{tokenizer_size}", tokenizer_size=tokenizer_size)
    server = Server(flat, "--kv-cache-memory-bytes", "64MiB", logs=logs)
    if tokenizer_size > 512:
        server.spawn()
        wait_until(lambda: server.process.poll() is not None or server.is_ready(), 60, "an end or readiness")
        if server.process.poll() is not None:
            assert server.process.returncode == 1 and "513" in server.log and "512" in server.log
            return
    else:
        server.start()
    try:
        check_error(server.post("/v1/completions", {"prompt": [tokenizer_size if tokenizer_size < 512 else 512]}), 400)
        answer = server.complete("hello", temperature=1, seed=1, n=16, max_tokens=600, ignore_eos=True,
                                 return_token_ids=True)
        ids = [token for choice in answer["choices"] for token in choice["token_ids"]]
        assert len(ids) == 16 * 600 and max(ids) < min(tokenizer_size, 512)
    finally:
        assert server.stop()[0] == 0
