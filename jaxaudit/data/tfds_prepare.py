"""Prepares a TensorFlow Datasets set in a separate process: the only place that uses the network.

TFDS prepares sets only with TensorFlow, which in a child process takes no memory of the accelerator and cannot write to
stdout.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from jaxaudit.errors import InputError

CONNECT_SECONDS = 5.0
_MOST_HOSTS = 8
_IDX = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz")
_IDX_FILES = (*_IDX, "t10k-labels-idx1-ubyte.gz")
# Sets whose original files jaxaudit reads by itself, so that TensorFlow is not needed.
_READABLE_ORIGINALS = {
    "mnist": _IDX_FILES,
    "fashion_mnist": _IDX_FILES,
    "kmnist": _IDX_FILES,
    "svhn_cropped": ("train_32x32.mat", "test_32x32.mat", "extra_32x32.mat"),
}


def can_prepare() -> bool:
    """Whether the `prepare` extra (TensorFlow and importlib_resources) is installed; imports neither."""
    return find_spec("tensorflow") is not None and find_spec("importlib_resources") is not None


def has_originals(base: str, folder: Path) -> bool:
    """Whether `folder` holds an original file of the TFDS set `base`, by the names that TFDS recorded."""
    return can_prepare() and any((folder / name).is_file() for name in _original_files(base).values())


def prepare_array_record(name: str, base: str, folders: tuple[Path, ...], data_folder: Path | None) -> None:
    """Prepares the set `name` (`base[/config][:version]`) as array_record in the first writable of `folders`:
    completely or not at all. Original files in FOLDER/`base` or FOLDER/downloads/manual with the checksums that TFDS
    recorded are used instead of downloads.
    """
    if not can_prepare():
        raise InputError(
            f"{name} is not prepared here, and preparing it needs TensorFlow: run "
            f"pip install 'jaxaudit[prepare]'{_or_put(_READABLE_ORIGINALS.get(base, ()), base, data_folder)}."
        )
    target = next(filter(_writable, folders), None)
    if target is None:
        tried = ", ".join(map(str, folders)) or "no folders"
        raise InputError(
            f"{name} is not prepared here and cannot be: none of {tried} is writable; "
            "set TFDS_DATA_DIR to a writable folder."
        )
    manual = _manual_folder(base, folders)
    job = {
        "name": name,
        "base": base,
        "target": str(target),
        "manual": manual and str(manual),
        "data": data_folder and str(data_folder),
    }
    environment = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "-1",
        # So that the child imports the same modules as this process.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    child = subprocess.run(
        [sys.executable, "-P", "-c", "from jaxaudit.data.tfds_prepare import _child; _child()", json.dumps(job)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    try:
        refusal = json.loads(child.stdout)["refusal"]
    except (ValueError, KeyError, TypeError):
        raise RuntimeError(f"preparing {name} ended with status {child.returncode}; see the messages above") from None
    if refusal is not None:
        raise InputError(refusal)


def _writable(folder: Path) -> bool:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    # The mode is checked, too: root may write anywhere, but a read-only folder should stay unchanged.
    return existing.is_dir() and bool(existing.stat().st_mode & 0o222) and os.access(existing, os.W_OK | os.X_OK)


def _manual_folder(base: str, folders: tuple[Path, ...]) -> Path | None:
    for folder in folders:
        for manual in (folder / base, folder / "downloads" / "manual"):
            if manual.is_dir() and any(path.is_file() for path in manual.iterdir()):
                return manual
    return None


def _original_files(base: str) -> Mapping[str, str]:
    """URL -> file name, as TFDS recorded them; without the network and without TensorFlow."""
    import tensorflow_datasets as tfds

    try:
        infos = tfds.builder_cls(base).url_infos or {}
    except tfds.core.DatasetNotFoundError:
        return {}
    return {url: info.filename or Path(urlsplit(url).path).name for url, info in infos.items()}


def _or_put(files: Sequence[str], base: str, data_folder: Path | None) -> str:
    if not files:
        return ""
    listed = ", ".join(files) if len(files) <= 6 else f"its {len(files)} original files ({files[0]}, ...)"
    if data_folder is None:
        return f", or put {listed} in a folder DIR/{base} and set JAXAUDIT_DATA=DIR"
    return f", or put {listed} in {data_folder / base}"


def unreachable_hosts(urls: Iterable[str], seconds: float = CONNECT_SECONDS) -> tuple[str, ...]:
    """The hosts of `urls`, if none of them answers within about `seconds`; else none. Connects as TFDS will (by
    requests, with the environment's proxies), in threads that are not waited for: Python cannot bound the time of a
    name look-up.
    """
    hosts = {urlsplit(url).netloc: url for url in urls if url.startswith("http")}
    asked_hosts = dict(list(hosts.items())[:_MOST_HOSTS])
    answers: SimpleQueue[bool] = SimpleQueue()
    for url in asked_hosts.values():
        threading.Thread(target=lambda url=url: answers.put(_answers(url, seconds)), daemon=True).start()
    deadline = monotonic() + seconds + 1
    with suppress(Empty):
        for _ in asked_hosts:
            if answers.get(timeout=max(0.0, deadline - monotonic())):
                return ()
    return tuple(asked_hosts)


def _answers(url: str, seconds: float) -> bool:
    import requests

    try:
        status = requests.head(url, timeout=seconds).status_code
    except (requests.RequestException, OSError, ValueError):
        return False
    # TFDS would retry these for minutes; 407 is a proxy that asks for a password.
    return status not in (407, 500, 502, 503, 504)


def _child() -> None:
    """The child process: one JSON job in, one JSON answer out; other output goes to stderr."""
    job = json.loads(sys.argv[1])
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        json.dump({"refusal": _refusal(**job)}, answer)


def _refusal(name: str, base: str, target: str, manual: str | None, data: str | None) -> str | None:
    """Prepares the set; returns None on success, else a one-line reason."""
    files = _original_files(base)
    missing = {url: file for url, file in files.items() if manual is None or not (Path(manual) / file).is_file()}
    if hosts := unreachable_hosts(missing):
        advice = _or_put(list(missing.values()), base, Path(data) if data else None)
        return (
            f"{name} is not prepared here and its originals cannot be downloaded: no answer from {', '.join(hosts)}. "
            f"Connect to the network (HTTPS_PROXY for a proxy), or prepare it elsewhere and set TFDS_DATA_DIR{advice}."
        )
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import downloader

    from jaxaudit.data.tfds import supervised

    downloader.MAX_RETRIES = 3  # ten take more than three minutes to say that a host is gone
    try:
        builder = tfds.builder(name, data_dir=target, file_format="array_record")
        features: Any = builder.info.features
        kinds = {key: type(feature).__name__ for key, feature in features.items()} if hasattr(features, "items") else {}
        supervised(kinds, builder.info.supervised_keys, name)
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(manual_dir=manual, try_download_gcs=False)
        )
    except InputError as error:
        return str(error)
    except Exception as error:  # each of TFDS's builders fails in its own way
        reason = " ".join(str(error).split())[:400]
        return f"{name}: TensorFlow Datasets could not prepare it ({type(error).__name__}: {reason})."
    return None
