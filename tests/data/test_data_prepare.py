"""Preparing a TFDS set: refused within seconds offline."""

import http.server
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import pytest

import jaxaudit.data.tfds.prepare as prepare_module
from jaxaudit.data import load
from jaxaudit.data.tfds.prepare import CONNECT_SECONDS, ask_hosts, prepare
from jaxaudit.errors import InputError

ORIGINALS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@contextmanager
def _serve(status: int) -> Iterator[str]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def silent() -> Iterator[str]:
    """A host that takes the connection and never says anything, as behind many firewalls."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """A host that refuses the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_one_host_that_answers_is_enough_and_is_not_waited_past(silent, closed):
    with _serve(200) as host:
        start = monotonic()
        assert ask_hosts([f"http://{each}/" for each in (silent, closed, host)], 5.0)() == ()
        assert monotonic() - start < 4


def test_a_silent_host_is_waited_for_only_so_long(silent, monkeypatch):
    """And so is a name service that hangs; with nothing to fetch, nothing is unreachable."""
    start = monotonic()
    assert ask_hosts([])() == ask_hosts(["gs://bucket/file"])() == ()
    assert ask_hosts([f"http://{silent}/a", f"http://{silent}/b"], 0.5)() == (silent,)
    released = threading.Event()
    monkeypatch.setattr(prepare_module, "_answers", lambda *_: released.wait(30))
    assert ask_hosts(["https://example.org/"], 0.2)() == ("example.org",)
    assert monotonic() - start < 5
    released.set()


@pytest.mark.skipif(find_spec("tensorflow") is not None, reason="this is about TensorFlow not being installed")
def test_without_tensorflow_nobody_is_asked(tmp_path, monkeypatch, silent):
    monkeypatch.setenv("HTTPS_PROXY", f"http://{silent}")
    start = monotonic()
    with pytest.raises(InputError, match=r"preparing it needs TensorFlow: run pip install ") as refused:
        load("tfds:mnist", data_dir=tmp_path)
    assert monotonic() - start < CONNECT_SECONDS
    assert all(f"{name}.gz" in str(refused.value) for name in ORIGINALS)


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """TensorFlow looks installed, and a host that does not let through stands between here and all others."""
    if find_spec("tensorflow") is None:
        (tmp_path / "stub" / "tensorflow").mkdir(parents=True)
        (tmp_path / "stub" / "tensorflow" / "__init__.py").write_text("raise ImportError('the stub was imported')")
        monkeypatch.syspath_prepend(tmp_path / "stub")

    def behind(host: str) -> Path:
        for variable in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(variable, f"http://{host}")
        return tmp_path / "data"

    return behind


@pytest.mark.outer
@pytest.mark.skipif(find_spec("importlib_resources") is None, reason="TFDS prepares only with importlib_resources")
@pytest.mark.parametrize("kind", ["silent", "closed"])
def test_offline_with_tensorflow_the_refusal_is_quick(offline, kind, request, capfd):
    data_dir = offline(request.getfixturevalue(kind))
    start = monotonic()
    with pytest.raises(InputError) as refused:
        load("tfds:mnist", data_dir=data_dir)
    assert monotonic() - start < 15
    said = str(refused.value)
    assert said.startswith("mnist is not prepared here and its originals cannot be downloaded: no answer from ")
    assert "TFDS_DATA_DIR" in said
    assert said.endswith(f" in {data_dir / 'mnist'}.")
    assert all(f"{name}.gz" in said for name in ORIGINALS)
    assert capfd.readouterr().out == ""
    assert not (data_dir / "mnist").exists()


def test_no_writable_folder(tmp_path, monkeypatch):
    """A folder that is read-only on purpose is not written to, whoever writes."""
    monkeypatch.setattr(prepare_module, "can_prepare", lambda: True)
    (tmp_path / "file").write_text("")
    (tmp_path / "shared").mkdir(mode=0o555)
    for folders in ((tmp_path / "file",), (tmp_path / "shared", tmp_path / "shared" / "deeper")):
        with pytest.raises(InputError, match=r"mnist is not prepared here .* is writable; set TFDS_DATA_DIR"):
            prepare("mnist", "mnist", folders, None)


@pytest.mark.outer
@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_a_child_that_dies_is_a_failure_not_the_users_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_module, "can_prepare", lambda: True)
    (tmp_path / "python").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(prepare_module.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(RuntimeError, match="preparing mnist ended with status 9"):
        prepare("mnist", "mnist", (tmp_path,), None)
