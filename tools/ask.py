#!/usr/bin/env python3
"""Asks a running OpenAI-compatible server one question and prints the answer as it arrives.

Standard library only. Exits with 1 and one line on standard error if no answer came.
"""
import argparse
import http.client
import json
import os
import sys
import time
import urllib.parse


def headers():
    key = os.environ.get("MASU_API_KEY")
    return {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}


def open_request(url, method, path, body=None, timeout=300):
    # http.client rather than urllib: it never sends a request for this machine through a proxy.
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout)
    connection.request(method, path, json.dumps(body) if body else None, headers())
    response = connection.getresponse()
    if response.status != 200:
        text = response.read().decode(errors="replace").strip()
        raise RuntimeError(f"{method} {path} answered {response.status}: {text[:300]}")
    return response


def stream_chunks(response):
    for line in response:
        line = line.decode().strip()
        if not line.startswith("data:"):
            continue
        data = line[len("data:"):].strip()
        if data == "[DONE]":
            return
        chunk = json.loads(data)
        if "error" in chunk:
            raise RuntimeError(f"the server reported: {chunk['error']}")
        yield chunk
    raise RuntimeError("the stream ended before [DONE]")


def ask(url, question, max_tokens):
    models = json.load(open_request(url, "GET", "/v1/models"))
    body = {"model": models["data"][0]["id"], "messages": [{"role": "user", "content": question}],
            "temperature": 0, "max_tokens": max_tokens, "stream": True,
            "stream_options": {"include_usage": True}}
    start = time.monotonic()
    first = last = None
    answer, usage = "", {}
    for chunk in stream_chunks(open_request(url, "POST", "/v1/chat/completions", body)):
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", []):
            text = choice.get("delta", {}).get("content")
            if text:
                last = time.monotonic()
                first = first or last
                answer += text
                print(text, end="", flush=True)
    print(flush=True)
    if not answer.strip():
        raise RuntimeError("the answer was empty")
    tokens = usage.get("completion_tokens", 0)
    # The first token is prefill's; the others are decoded between it and the last.
    rate = f"{(tokens - 1) / (last - first):.1f} tokens/s" if tokens > 1 and last > first else "one piece"
    print(f"        {usage.get('prompt_tokens', 0)} prompt tokens, {tokens} answer tokens; "
          f"first after {first - start:.2f} s, then {rate}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--max-tokens", type=int, default=64)
    arguments = parser.parse_args()
    try:
        ask(arguments.url, arguments.question, arguments.max_tokens)
    except (OSError, RuntimeError, http.client.HTTPException, ValueError, KeyError, IndexError) as error:
        print(f"\nmasu: no answer from {arguments.url}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
