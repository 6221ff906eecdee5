"""The real `openai` client against SmolLM2 with an FP8 cache of 1 GiB, as in the README."""
import openai
import pytest
from serving import in_parallel, wait_until

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
COUNTRIES = """France Spain Italy Portugal Greece Germany Austria Poland Hungary Sweden Norway Finland Denmark Iceland Ireland
Scotland England Wales Belgium Romania Bulgaria Serbia Croatia Turkey Egypt Kenya Ghana Nigeria Morocco Algeria Tunisia
Ethiopia Japan China India Nepal Vietnam Thailand Korea Mongolia Iran Iraq Israel Jordan Lebanon Syria Qatar Oman Canada
Mexico Cuba Jamaica Brazil Peru Chile Argentina Bolivia Colombia Ecuador Uruguay Paraguay Australia Fiji Samoa""".split()


@pytest.fixture(scope="module")
def client(smollm2):
    with openai.OpenAI(base_url=f"{smollm2.url}/v1", api_key="none", max_retries=0, timeout=300) as client:
        yield client


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def test_models(client, smollm2):
    models = client.models.list().data
    assert [entry.id for entry in models] == ["SmolLM2-135M-Instruct.Q4_1"]
    assert models[0].object == "model" and models[0].max_model_len == 8192


def test_chat(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=16)
    choice = answer.choices[0]
    assert "Paris" in choice.message.content and choice.message.role == "assistant" and not choice.message.tool_calls
    assert choice.finish_reason == "stop" and answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens

    chunks = list(client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=16, stream=True,
                                                 stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == choice.message.content
    assert chunks[-1].choices == []
    # The same but for what is read from the cache: the second time all whole pages before the last token.
    first, second = answer.usage.model_dump(), chunks[-1].usage.model_dump()
    whole = (answer.usage.prompt_tokens - 1) // 16 * 16
    assert first.pop("prompt_tokens_details")["cached_tokens"] <= whole
    assert second.pop("prompt_tokens_details")["cached_tokens"] == whole > 0
    assert first == second
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert len(chunks) >= answer.usage.completion_tokens, "it came token by token"


def test_completions(client, model):
    fields = {"model": model, "prompt": "The capital of France is", "temperature": 0, "max_tokens": 8}
    answer = client.completions.create(**fields)
    assert "Paris" in answer.choices[0].text and answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert answer.usage.completion_tokens == 8 and answer.choices[0].finish_reason == "length"
    chunks = list(client.completions.create(**fields, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text
    assert all(chunk.usage is None for chunk in chunks)


def test_sixty_four_streams(client, model, smollm2):
    """Half completions, half chats: none is lost, and each is what it is alone."""
    assert len(set(COUNTRIES)) == 64

    def ask(job):
        index, country = job
        if index % 2:
            messages = [{"role": "system", "content": "Answer."}, {"role": "user", "content": f"What is the capital of {country}?"}]
            with client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=8, stream=True) as stream:
                chunks = list(stream)
            texts = [chunk.choices[0].delta.content or "" for chunk in chunks]
        else:
            prompt = f"Question: What is the capital of {country}?\nAnswer: The capital of {country} is"
            with client.completions.create(model=model, prompt=prompt, temperature=0, max_tokens=6, stream=True) as stream:
                chunks = list(stream)
            texts = [chunk.choices[0].text for chunk in chunks]
        assert chunks[-1].choices[0].finish_reason in ("stop", "length")
        return "".join(texts)
    jobs = list(enumerate(COUNTRIES))
    steps, tokens = smollm2.metric("engine_steps_total"), smollm2.metric("generation_tokens_total")
    together = in_parallel(ask, jobs)
    steps, tokens = smollm2.metric("engine_steps_total") - steps, smollm2.metric("generation_tokens_total") - tokens
    assert tokens / steps > 8, "they were batched"
    assert len(together) == 64 and all(together)
    alone = [ask(job) for job in jobs]
    assert together == alone
    assert [city for city, text in zip(["Paris", "Rome", "Athens"], alone[::2]) if city not in text] == []
    wait_until(smollm2.is_idle, 2, "idle")


def test_n(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, n=2, seed=5, temperature=1.5, max_tokens=12)
    assert [choice.index for choice in answer.choices] == [0, 1]
    texts = [choice.message.content for choice in answer.choices]
    assert texts[0] != texts[1]
    streamed = ["", ""]
    for chunk in client.chat.completions.create(model=model, messages=QUESTION, n=2, seed=5, temperature=1.5, max_tokens=12,
                                                stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_logprobs(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=5, logprobs=True,
                                            top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == 5
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == answer.choices[0].message.content
    for entry in entries:
        assert len(entry.top_logprobs) == 3 and entry.top_logprobs[0].token == entry.token
        assert entry.top_logprobs[0].logprob == entry.logprob <= 0
    answer = client.completions.create(model=model, prompt="The capital of France is", temperature=0, max_tokens=2, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert "".join(logprobs.tokens) == answer.choices[0].text and logprobs.text_offset == [0, len(logprobs.tokens[0])]
    assert all(len(top) == 2 for top in logprobs.top_logprobs)


def test_stop(client, model):
    fields = {"model": model, "prompt": "The capital of France is", "temperature": 0, "max_tokens": 12}
    full = client.completions.create(**fields).choices[0].text
    answer = client.completions.create(**fields, stop=["aris"])
    assert answer.choices[0].text == full[:full.index("aris")] and answer.choices[0].finish_reason == "stop"
    chunks = list(client.completions.create(**fields, stop=["aris"], stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text


def test_conversation_with_system_message(client, model, smollm2):
    messages = [{"role": "system", "content": "You answer in one word."}, *QUESTION,
                {"role": "assistant", "content": "Paris"}, {"role": "user", "content": [{"type": "text", "text": "What is the capital of Italy?"}]}]
    answer = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=8)
    assert "Rome" in answer.choices[0].message.content
    tokens = smollm2.ok("/tokenize", {"messages": messages})["tokens"]
    assert answer.usage.prompt_tokens == len(tokens)
    prompt = smollm2.ok("/detokenize", {"tokens": tokens})["prompt"]
    assert prompt.startswith("<|im_start|>system\nYou answer in one word.<|im_end|>\n<|im_start|>user\n")
    assert prompt.endswith("Italy?<|im_end|>\n<|im_start|>assistant\n")


def test_errors(client, model):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=QUESTION)
    assert caught.value.param == "model" and caught.value.body["code"] == 404 and "gpt-9" in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=QUESTION, temperature=-1)
    assert caught.value.param == "temperature" and caught.value.type == "BadRequestError"
    with pytest.raises(openai.BadRequestError, match="maximum context length is 8192 tokens"):
        client.completions.create(model=model, prompt=[5] * 9000)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=QUESTION, stream=True, response_format={"type": "json_object"})
    assert caught.value.status_code == 400
    with pytest.raises(openai.APIStatusError, match="embeddings are not supported") as caught:
        client.embeddings.create(model=model, input="hello")
    assert caught.value.status_code == 501


def test_wrong_key(tiny, serve):
    server = serve(tiny.rand(), "--kv-cache-memory-bytes", "1MiB", "--api-key", "right")
    for key, fails in (("wrong", True), ("right", False)):
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)
        if fails:
            with pytest.raises(openai.AuthenticationError) as caught:
                client.models.list()
            assert caught.value.body["code"] == 401
        else:
            assert client.models.list().data[0].id == "rand"


def test_leaving_a_stream(client, model, smollm2):
    """`break` in the loop and closing the stream, as people do: the pages are free within 2 s."""
    for _ in range(3):
        stream = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Count to 1000."}],
                                                temperature=0, max_tokens=1000, stream=True,
                                                extra_body={"ignore_eos": True})
        for count, _ in enumerate(stream):
            if count == 2:
                break
        assert smollm2.metric("kv_pages_used") > 0
        stream.close()
        wait_until(smollm2.is_idle, 2, "idle")
