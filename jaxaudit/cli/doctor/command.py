"""`jaxaudit doctor`: what is installed and ready here, and what to do about what is not."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from jaxaudit.version import __version__

NVIDIA = Path("/proc/driver/nvidia/version")
OF_TESTS = ("test", "bench", "docs", "dev")
"""Extras for developers of this package; `doctor` does not suggest installing them."""


class Devices(NamedTuple):
    """The devices that JAX computes on, the cores and bytes that this process may use; `error`: why there is none."""

    names: tuple[str, ...]
    cores: int
    memory: int
    error: str = ""


class DataSet(NamedTuple):
    """A data set with a known name; `todo` says what is missing, empty if it is ready."""

    name: str
    where: str
    todo: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Shows what is installed and ready, and what to do about what is not. It changes nothing.

    Versions, the devices that JAX sees, where data, caches and compiled programs lie and how large they are, extras,
    and data sets. Exit status 1 where something is missing that every command needs; extras and data sets are not.

    Examples:

    `jaxaudit doctor`

    `jaxaudit doctor --json`
    """
    from jaxaudit.cli.doctor.installed import extras, list_folders, packages
    from jaxaudit.cli.job import Summary
    from jaxaudit.cli.show import show_summary

    needed, added, folders, devices, sets = packages(), extras(), list_folders(), _devices(), _data_sets()
    problems = [*_problems(needed, folders, devices)]
    program = {
        "jaxaudit": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "where": str(Path(__file__).parents[2]),
        "executable": sys.executable,
    }
    report = {
        **program,
        "devices": devices._asdict(),
        "places": [{**place._asdict(), "path": place.path and str(place.path)} for place in folders],
        "packages": [package._asdict() for package in needed],
        "extras": [
            {"name": name, "ready": _all_fit(of_extra), "packages": [package._asdict() for package in of_extra]}
            for name, of_extra in added.items()
        ],
        "data_sets": [{**data_set._asdict(), "ready": not data_set.todo} for data_set in sets],
        "problems": problems,
    }
    head = f"jaxaudit {__version__}, Python {program['python']}, {program['system']}"
    lines = (head, f"  {program['where']}", *_lines(needed, added, folders, devices, sets, problems))
    show_summary(Summary(lines, report), as_json)
    if problems:
        raise typer.Exit(1)


def _devices() -> Devices:
    from jaxaudit.data.memory import memory_bytes

    try:
        import jax

        from jaxaudit.ensemble.concurrency import cores

        names = tuple(f"{device.platform}: {device.device_kind}" for device in jax.local_devices())
    except (ImportError, RuntimeError) as error:
        why = (str(error).strip().splitlines() or ["no reason given"])[0]
        return Devices((), os.cpu_count() or 1, memory_bytes(), why)
    return Devices(names, len(cores()), memory_bytes())


def _data_sets() -> list[DataSet]:
    """Embedded sets, sets whose files a user must place, and prepared sets."""
    from jaxaudit.data.paths import entries
    from jaxaudit.data.resolve import embedded_names
    from jaxaudit.data.tables.resolve import table_names, what_is_missing
    from jaxaudit.data.tfds.tfds import data_folder, prepared_names, set_folders

    sets_found = [DataSet(name, "embedded") for name in embedded_names()]
    for name in table_names():
        missing = what_is_missing(name)
        sets_found.append(DataSet(name, "" if missing else "the data folder, or embedded", missing))
    sets_found += [DataSet(name, str(folder)) for folder in set_folders(None) for name in prepared_names(folder)]
    set_names, folder = {data_set.name.partition("/")[0] for data_set in sets_found}, data_folder(None)
    other_folders = [
        path for path in (entries(folder) if folder is not None and folder.is_dir() else []) if path.is_dir()
    ]
    return sets_found + [
        DataSet(path.name, f"{path}, not looked into") for path in other_folders if path.name not in set_names
    ]


def _problems(needed: Any, folders: Any, devices: Devices) -> Iterator[str]:
    if not needed:
        yield "jaxaudit is not installed here, only found; install it from its checkout: pip install ."
    for package in needed:
        if not package.fits:
            trouble = "is missing" if package.version is None else f"is {package.version}"
            yield (
                f"{package.name} {trouble}, {package.needs or 'any version'} is needed: pip install "
                f"'{package.name}{package.needs}'"
            )
    if devices.error:
        yield f"JAX has no device ({devices.error}); unset JAX_PLATFORMS, or install JAX for this machine."
    for folder in folders:
        if folder.name == "cache" and not folder.writable:
            yield f"the cache folder {folder.path} cannot be written; set JAXAUDIT_CACHE to a folder of yours."


def _lines(
    needed: Any, added: Any, folders: Any, devices: Devices, sets: list[DataSet], problems: list[str]
) -> Iterator[str]:
    yield from ("", "Devices")
    counted = f"{devices.cores} cores, {_bytes(devices.memory)} of memory"
    yield from (f"  {name}" for name in devices.names or ["none"])
    yield f"  {counted}"
    gpu = NVIDIA.exists() or shutil.which("nvidia-smi") is not None
    if gpu and not any(name.startswith(("gpu", "cuda")) for name in devices.names):
        yield "  There is an NVIDIA driver, but JAX does not use it: pip install '.[cuda]' in the checkout"
    yield from ("", "Folders")
    for place in folders:
        yield f"  {place.name:<18}{_place(place)}"
    yield from ("", "Packages")
    yield from _wrapped(
        [f"{package.name} {package.version or 'missing'}{'' if package.fits else ' (!)'}" for package in needed]
    )
    yield from ("", "Extras")
    for name, of_extra in added.items():
        lacking = ", ".join(package.name for package in of_extra if not package.fits)
        advice = "" if name in OF_TESTS else f": pip install '.[{name}]' in the checkout"
        yield f"  {name:<9} {f'{lacking} missing{advice}' if lacking else 'ready'}"
    yield from ("", "Data sets")
    yield from _wrapped([data_set.name for data_set in sets if not data_set.todo])
    yield from (f"  {data_set.todo}" for data_set in sets if data_set.todo)
    if "prepare" not in added or not _all_fit(added["prepare"]):
        yield "  Others of TensorFlow Datasets are prepared with the extra `prepare`."
    yield from ("", "To do" if problems else "Everything that commands need is there.")
    yield from (f"  {problem}" for problem in problems)


def _all_fit(of_extra: Any) -> bool:
    return all(package.fits for package in of_extra)


def _place(place: Any) -> str:
    if place.path is None:
        return "none; set JAXAUDIT_DATA, or give --data-dir"
    by = f" ({place.chosen_by})" if place.chosen_by else ""
    if not place.there:
        return f"{place.path}{by}: not there yet"
    size = f"{'' if place.complete else 'at least '}{_bytes(place.size)}, {place.files:,} files"
    return f"{place.path}{by}: {size}{'' if place.writable else ', not writable'}"


def _wrapped(words: list[str], width: int = 78) -> Iterator[str]:
    """The words in lines, as many on each as fit."""
    line = ""
    for word in words:
        if line and len(line) + len(word) + 2 > width:
            yield f"  {line},"
            line = ""
        line += f"{', ' if line else ''}{word}"
    yield f"  {line or 'none'}"


def _bytes(size: int) -> str:
    """A size in a suitable unit.

    >>> _bytes(900), _bytes(3 << 20), _bytes(5 << 30)
    ('0.9 KiB', '3.0 MiB', '5.0 GiB')
    """
    for unit, least in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size / 1024:.1f} KiB"
