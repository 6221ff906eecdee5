"""Conversations that chat templates are compared on: plain, with tools, odd and broken ones."""

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather's state \"now\" <fast> & well",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "description": "How many days"},
                "where": {
                    "type": "object",
                    "description": "A place",
                    "properties": {
                        "lat": {"type": "number"},
                        "tags": {"type": "array", "items": {"type": "string"}},
                    },
                    "required": ["lat"],
                },
            },
            "required": ["city"],
        },
    },
}
PLAIN_TOOL = {
    "type": "function",
    "function": {
        "name": "stop",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    },
}
BARE_TOOL = {"type": "function", "function": {"name": "nothing"}}
SIMPLE_TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": " first "},
                "b": {"type": "number", "description": "second"},
                "rest": {"type": "object", "description": "more",
                         "additionalProperties": {"type": "string"}},
            },
            "required": ["a", "b"],
        },
        "return": {"type": "string", "description": "the sum"},
    },
}
RETURN_TOOL = {
    "type": "function",
    "function": dict(TOOL["function"], name="with_return",
                     **{"return": {"type": "number", "description": "degrees"}}),
}


def user(content, **more):
    return dict({"role": "user", "content": content}, **more)


def system(content, **more):
    return dict({"role": "system", "content": content}, **more)


def assistant(content, **more):
    return dict({"role": "assistant", "content": content}, **more)


def tool(content, **more):
    return dict({"role": "tool", "content": content}, **more)


def call(name, arguments, id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


ARGUMENTS = {"city": "Zürich", "days": 3, "where": {"lat": 47.37, "tags": ["a", "b"]}, "ok": True,
             "none": None}
UNICODE = "日本語 한국어 \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301 <|im_end|> {{ x }} {% y %}\t\u00a0ß"


def plain():
    return [
        [user("Hi")],
        [user("")],
        [user("  spaces around  \n")],
        [user(UNICODE)],
        [system("Be brief."), user("Hi")],
        [system(""), user("Hi")],
        [system("  padded  "), user("Hi"), assistant("Hello!"), user("More?")],
        [user("a"), assistant("b"), user("c"), assistant("d")],
        [user("a"), assistant("b"), user("c"), assistant("d"), user("e")],
        [user(parts("one"))],
        [user(parts("one", "two"))],
        [system(parts("sys")), user(parts("one")), assistant(parts("answer")), user("x")],
        [user([{"type": "image"}, {"type": "text", "text": "what is it?"}])],
        [user([{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "?"}])],
        [dict(role="developer", content="Dev rules"), user("Hi")],
        [user("a\n\nb\r\nc"), assistant("x\n"), user("y")],
        [user("q"), assistant("<think>\nreason\n</think>\n\nanswer"), user("again")],
        [user("q"), assistant("answer", reasoning_content="because"), user("again")],
        [user("q"), assistant("answer", reasoning_content="because")],
        [user("q"), assistant("answer", reasoning_content=""), user("again")],
        [user("q"), assistant("answer", reasoning="because", thinking="hm"), user("again")],
        [user("q", name="bob"), assistant("a", name="bot"), user("c")],
        [system("/no_think"), user("q /think"), assistant("<think></think>x"), user("q2")],
    ]


def with_calls():
    both = [call("get_weather", ARGUMENTS), call("stop", {}, "call00002")]
    return [
        [user("w?"), assistant(None, tool_calls=[call("get_weather", ARGUMENTS)])],
        [user("w?"), assistant("", tool_calls=[call("get_weather", ARGUMENTS)]),
         tool("sunny", tool_call_id="call00001", name="get_weather")],
        [user("w?"), assistant("Let me see.", tool_calls=[call("get_weather", ARGUMENTS)]),
         tool("{\"t\": 21}", tool_call_id="call00001", name="get_weather"), assistant("21 degrees"),
         user("thanks")],
        [user("w?"), assistant("", tool_calls=both), tool("a", tool_call_id="call00001"),
         tool("b", tool_call_id="call00002"), assistant("done"), user("next")],
        [user("w?"), assistant("", tool_calls=[call("get_weather", "{\"city\": \"Bern\"}")]),
         tool("x", tool_call_id="call00001"), user("ok")],
        [user("w?"), {"role": "assistant", "tool_calls": [call("stop", {})]},
         tool(parts("p1", "p2"), tool_call_id="call00001")],
        [system("S"), user("w?"),
         assistant("c", reasoning_content="why", tool_calls=[call("get_weather", ARGUMENTS)]),
         tool("r", tool_call_id="call00001"), assistant("end", reasoning_content="so")],
        [user("w?"), assistant("", tool_calls=[call("get_weather", ARGUMENTS)]),
         tool({"t": 21, "ok": [1, 2.5, None]}, tool_call_id="call00001", name="get_weather")],
        [user("w?"), assistant("", tool_calls=[]), user("x")],
        [user("w?"), assistant(None, tool_calls=None), user("x")],
        [user("w?"), assistant("", tool_calls=[{"name": "flat", "arguments": {"a": 1e20}}]),
         tool("r")],
    ]


def broken():
    return [
        [],
        [assistant("first")],
        [user("a"), user("b")],
        [assistant("x"), assistant("y")],
        [system("only")],
        [user("a"), system("late"), user("b")],
        [user(None)],
        [{"role": "user"}],
        [{"content": "no role"}],
        [dict(role="alien", content="x"), user("y")],
        [user(3)],
        [user(["just", "strings"])],
        [user([])],
        [user({"text": "mapping"})],
        [tool("orphan", tool_call_id="zz")],
        [user("w"), assistant("", tool_calls=[{"function": {"name": "f"}}])],
        [user("w"), assistant("", tool_calls=[call("f", {"a": 1}, "short")]), tool("r", tool_call_id="short")],
        ["not a message"],
        [user("Hi"), assistant("partial", prefix=True)],
    ]


def requests():
    """All requests, without the template."""
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    out = []
    for messages in plain() + with_calls() + broken():
        for tools in (None, [TOOL, PLAIN_TOOL]):
            out.append(dict(tokens, messages=messages, tools=tools, add_generation_prompt=True))
    for messages in plain() + with_calls():
        out.append(dict(tokens, messages=messages, tools=[SIMPLE_TOOL]))
        out.append(dict(tokens, messages=messages, tools=[SIMPLE_TOOL["function"]]))
    for messages in plain()[:9] + with_calls():
        out.append(dict(tokens, messages=messages, tools=None, add_generation_prompt=False))
    for tools in ([], [BARE_TOOL], [RETURN_TOOL, TOOL], [TOOL["function"]]):
        for messages in plain()[:1] + with_calls()[:4]:
            out.append(dict(tokens, messages=messages, tools=tools, add_generation_prompt=True))
    for arguments in (
        {"enable_thinking": True}, {"enable_thinking": False}, {"thinking": True},
        {"thinking": False}, {"reasoning_effort": "high"}, {"reasoning_effort": "none"},
        {"date_string": "1 Jan 2026"}, {"builtin_tools": ["browser", "python", "code_interpreter"]},
        {"tools_in_user_message": False}, {"custom_tools": [TOOL]},
        {"documents": [{"title": "T", "text": "body", "doc_id": 1}]}, {"thinking_budget": 512},
        {"preserve_thinking": True, "clear_thinking": False}, {"model_identity": "You are X."},
        {"available_tools": [TOOL], "controls": {"length": "short"}}, {"think_level": "low"},
    ):
        for messages in (plain()[4], plain()[17], with_calls()[3], with_calls()[6]):
            for tools in (None, [TOOL]):
                out.append(dict(tokens, messages=messages, tools=tools, arguments=arguments,
                                add_generation_prompt=True))
    return out
