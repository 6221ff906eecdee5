"""Fixtures of the end-to-end tests. test.sh gives MASU_BINARY, MASU_TEST_MODEL and MASU_TEST_DATA."""
import os
import pathlib

import pytest
from serving import Server, TinyModels


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Makes tiny models; see TinyModels."""
    return TinyModels(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def smollm2_path():
    path = os.environ.get("MASU_TEST_MODEL", "")
    if not pathlib.Path(path).is_file():
        pytest.skip("SmolLM2 is not there: MASU_TEST_MODEL")
    return pathlib.Path(path)


@pytest.fixture(scope="session")
def golden_path():
    path = pathlib.Path(os.environ.get("MASU_TEST_DATA", "")) / "golden/smollm2/golden.npz"
    if not path.is_file():
        pytest.skip("golden/smollm2/golden.npz is not in MASU_TEST_DATA")
    return path


@pytest.fixture(scope="session")
def smollm2(smollm2_path, logs):
    """The published case: SmolLM2 with an FP8 cache, and nothing else, in 1 GiB."""
    with Server(smollm2_path, "--kv-cache-dtype", "fp8", "--kv-cache-dtype-choices", "none", "--kv-cache-memory-bytes", "1GiB",
                logs=logs) as server:
        yield server


@pytest.fixture
def serve(logs):
    """serve(model, *flags): a server for one test, stopped after it; its exit status must be 0."""
    servers = []

    def start(model, *arguments, **options):
        server = Server(model, *arguments, logs=logs, **options)
        servers.append(server)
        return server.start()
    yield start
    for server in servers:
        if server.process is not None and server.process.poll() is None:
            status, _ = server.stop()
            assert status == 0, f"masu serve ended with status {status}:\n{server.log}"


@pytest.fixture(scope="module")
def rand_server(tiny, logs):
    """T-RAND with a large cache, shared by the tests of a module."""
    with Server(tiny.rand(), "--kv-cache-memory-bytes", "8MiB", logs=logs) as server:
        yield server
