"""Preparing a TFDS set: refused within seconds offline; done once for real where TensorFlow is installed."""

import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import numpy as np
import pytest

import jaxaudit.data.tfds.prepare as prepare_module
from jaxaudit.data import load
from jaxaudit.data.tfds.prepare import ask_hosts, prepare
from jaxaudit.errors import InputError

ORIGINALS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MOST_SECONDS = 15

_LOAD = """
import sys
from pathlib import Path
from jaxaudit.data import load
from jaxaudit.errors import InputError
try:
    load(sys.argv[1], data_dir=Path(sys.argv[2]))
except InputError as error:
    print(error)
    raise SystemExit(2)
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "no_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)


def _serve(status: int) -> http.server.HTTPServer:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


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


@pytest.mark.parametrize(("status", "there"), [(200, True), (404, True), (405, True), (503, False), (407, False)])
def test_which_answers_count(status, there):
    server = _serve(status)
    try:
        host = f"127.0.0.1:{server.server_port}"
        assert ask_hosts([f"http://{host}/file"], 5.0)() == (() if there else (host,))
    finally:
        server.shutdown()
        server.server_close()


def test_one_host_that_answers_is_enough_and_is_not_waited_past(silent, closed):
    server = _serve(200)
    try:
        start = monotonic()
        urls = [f"http://{silent}/", f"http://{closed}/", f"http://127.0.0.1:{server.server_port}/"]
        assert ask_hosts(urls, 5.0)() == ()
        assert monotonic() - start < 4
    finally:
        server.shutdown()
        server.server_close()


def test_a_silent_host_is_waited_for_only_so_long(silent):
    start = monotonic()
    assert ask_hosts([f"http://{silent}/a", f"http://{silent}/b"], 0.5)() == (silent,)
    assert monotonic() - start < 3


def test_a_name_service_that_hangs_is_not_waited_for(monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(prepare_module, "_answers", lambda *_: released.wait(30))
    start = monotonic()
    assert ask_hosts(["https://example.org/"], 0.2)() == ("example.org",)
    assert monotonic() - start < 3
    released.set()


def test_nothing_to_fetch_is_nothing_unreachable():
    assert ask_hosts([])() == ()
    assert ask_hosts(["gs://bucket/file"])() == ()


def _load_in_a_process(name: str, data_dir: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], float]:
    path = os.pathsep.join([environment.pop("PYTHONPATH", ""), *sys.path]).strip(os.pathsep)
    start = monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, name, str(data_dir)],
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done, monotonic() - start


@pytest.mark.outer
@pytest.mark.skipif(find_spec("tensorflow") is not None, reason="this is about TensorFlow not being installed")
def test_without_tensorflow_the_refusal_is_quick(tmp_path, silent):
    done, seconds = _load_in_a_process("tfds:mnist", tmp_path, HTTPS_PROXY=f"http://{silent}")
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("mnist is not prepared here, and preparing it needs TensorFlow: run pip install ")
    assert all(f"{name}.gz" in done.stdout for name in ORIGINALS)
    assert done.stderr == ""
    assert seconds < MOST_SECONDS


@pytest.fixture
def tensorflow_or_stub(tmp_path) -> str:
    """A folder for PYTHONPATH with which TensorFlow looks installed: offline, it is never imported."""
    folder = tmp_path / "stub"
    if find_spec("tensorflow") is None:
        (folder / "tensorflow").mkdir(parents=True)
        (folder / "tensorflow" / "__init__.py").write_text("raise ImportError('the stub of TensorFlow was imported')")
    return str(folder)


@pytest.mark.outer
@pytest.mark.skipif(find_spec("importlib_resources") is None, reason="TFDS prepares only with importlib_resources")
@pytest.mark.parametrize("kind", ["silent", "closed"])
def test_offline_with_tensorflow_the_refusal_is_quick(tmp_path, tensorflow_or_stub, kind, request):
    proxy = f"http://{request.getfixturevalue(kind)}"
    data_dir = tmp_path / "data"
    done, seconds = _load_in_a_process(
        "tfds:mnist", data_dir, PYTHONPATH=tensorflow_or_stub, HTTPS_PROXY=proxy, https_proxy=proxy
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith(
        "mnist is not prepared here and its originals cannot be downloaded: no answer from storage.googleapis.com. "
        "Connect to the network (HTTPS_PROXY for a proxy), or prepare it elsewhere and set TFDS_DATA_DIR, or put "
    )
    assert done.stdout.endswith(f" in {data_dir / 'mnist'}.\n")
    assert all(f"{name}.gz" in done.stdout for name in ORIGINALS)
    assert len(done.stdout.splitlines()) == 1
    assert seconds < MOST_SECONDS
    assert not (data_dir / "mnist").exists()


@pytest.mark.outer
@pytest.mark.skipif(find_spec("importlib_resources") is None, reason="TFDS prepares only with importlib_resources")
def test_a_set_without_images_is_refused_before_it_is_downloaded(tmp_path, tensorflow_or_stub, closed):
    done, _ = _load_in_a_process(
        "imdb_reviews",
        tmp_path,
        PYTHONPATH=tensorflow_or_stub,
        HTTPS_PROXY=f"http://{closed}",
        HTTP_PROXY=f"http://{closed}",
    )
    assert done.returncode == 2, done.stderr
    assert "imdb_reviews is not an image-classification set" in done.stdout


def test_no_writable_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_module, "can_prepare", lambda: True)
    (tmp_path / "file").write_text("")
    with pytest.raises(
        InputError, match=r"mnist is not prepared here and cannot be: none of .* is writable; set TFDS_DATA"
    ):
        prepare("mnist", "mnist", (tmp_path / "file",), None)


def test_a_folder_read_only_on_purpose_is_not_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_module, "can_prepare", lambda: True)
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o555)
    with pytest.raises(InputError, match="is writable; set TFDS_DATA_DIR"):
        prepare("mnist", "mnist", (folder, folder / "deeper"), None)


def test_a_child_that_dies_is_a_failure_not_the_users_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_module, "can_prepare", lambda: True)
    monkeypatch.setattr(prepare_module.sys, "executable", str(_script(tmp_path, "exit 9")))
    with pytest.raises(RuntimeError, match="preparing mnist ended with status 9"):
        prepare("mnist", "mnist", (tmp_path,), None)


def _script(folder: Path, body: str) -> Path:
    if os.name != "posix":
        pytest.skip("needs a POSIX shell")
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


real = pytest.mark.skipif(
    find_spec("tensorflow") is None
    or not all(
        (Path(os.environ.get("JAXAUDIT_DATA", "/nonexistent")) / "mnist" / f"{name}.gz").is_file() for name in ORIGINALS
    ),
    reason="needs TensorFlow (the `prepare` extra) and the four original MNIST files in $JAXAUDIT_DATA/mnist",
)


@pytest.fixture
def originals(tmp_path) -> Path:
    """A writable data directory with links to the original files."""
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for name in ORIGINALS:
        (folder / f"{name}.gz").symlink_to(Path(os.environ["JAXAUDIT_DATA"]) / "mnist" / f"{name}.gz")
    return folder.parent


@real
def test_tfds_prepares_mnist_from_the_original_files(originals, capfd):
    found = {split: load(f"tfds:mnist@{split}", data_dir=originals) for split in ("train", "test")}
    assert capfd.readouterr().out == ""
    assert (originals / "mnist" / "3.0.1" / "dataset_info.json").is_file()
    assert "tensorflow" not in sys.modules
    for split, prepared in found.items():
        stored = load(f"mnist@{split}", data_dir=originals)
        assert prepared.class_names == stored.class_names
        # TFDS shuffles when it prepares: the same records, pixel for pixel and with their labels, in another order.
        for examples in (prepared, stored):
            assert examples.inputs.dtype == np.uint8
        rows = [
            sorted(zip((image.tobytes() for image in examples.inputs), examples.labels.tolist(), strict=True))
            for examples in (prepared, stored)
        ]
        assert rows[0] == rows[1]


@real
def test_an_original_file_that_is_not_the_published_one_is_refused(originals):
    (originals / "mnist" / f"{ORIGINALS[1]}.gz").unlink()
    (originals / "mnist" / f"{ORIGINALS[1]}.gz").write_bytes(b"something else")
    with pytest.raises(InputError, match=r"could not prepare it .*[Cc]hecksum"):
        load("tfds:mnist", data_dir=originals)
    assert not (originals / "mnist" / "3.0.1").exists()
