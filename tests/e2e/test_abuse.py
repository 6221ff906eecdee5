"""What a careless or hostile user does, and the answer that says what is wrong."""
import subprocess

import pytest
from serving import BINARY
from test_command_line import check_refusal, run


@pytest.mark.parametrize("flag, value", [("--api-key", ""), ("--served-model-name", ""), ("--max-body-bytes", "-1"),
                                         ("--max-body-bytes", "0"), ("--gpu-memory-utilization", "1.5"),
                                         ("--gpu-memory-utilization", "nan"), ("--gpu-memory-utilization", "0")])
def test_absurd_values(tiny, flag, value):
    """Also where another flag leaves it without effect: the cache has its size here."""
    check_refusal(run("serve", tiny.rand("abuse"), "--port", 0, "--kv-cache-memory-bytes", "1MiB", flag, value), flag, status=2)


def test_a_flag_given_twice(tiny):
    check_refusal(run("serve", tiny.rand("abuse"), "--port", 1, "--port", 2), "--port may be given once", status=2)


@pytest.mark.parametrize("command", [["tokenize"], ["generate", "-p", "x", "--max-tokens", "3"]], ids=" ".join)
def test_full_disk_is_no_success(tiny, command):
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run([str(BINARY), command[0], str(tiny.rand("abuse")), *command[1:]], input=b"some text", stdout=full,
                                stderr=subprocess.PIPE, timeout=60, check=False)
    assert result.returncode == 1 and b"cannot write to standard output" in result.stderr


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank"])
def test_routes_of_others_are_refused_by_name(rand_server, path):
    answer = rand_server.request("POST", path, {"input": "x"})
    assert answer.status == 501 and path in answer.error["message"]
