"""A run read back from disk. Whoever sent it may have written anything there: it is checked before it is used."""

import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.audits.unlearn.result import REFERENCES
from jaxaudit.data.paths import exists
from jaxaudit.errors import InputError, visible
from jaxaudit.report.run import Run
from jaxaudit.runs.directory import RESULT, TABLE
from jaxaudit.runs.files import read_archive, read_columns, read_result, read_table
from jaxaudit.runs.unfinished import NAME as UNFINISHED

PROVENANCE = {
    "type": "object",
    "required": ["jaxaudit", "command", "seed", "versions", "device", "started", "seconds", "options", "data"],
    "properties": {
        **{name: {"type": "string"} for name in ("jaxaudit", "python", "device", "started")},
        "command": {"type": "array", "items": {"type": "string"}},
        "seed": {"type": "integer"},
        "versions": {"type": "object", "additionalProperties": {"type": "string"}},
        "seconds": {"type": "number"},
        "options": {"type": "object"},
        "data": {"type": "object"},
    },
}
"""What a page shows of every run's provenance."""

Arrays = Mapping[str, np.ndarray]


class Kind(NamedTuple):
    """How the runs of one command are read.

    Attributes:
        read: the arrays beside the result in a run directory.
        check: raises ValueError, with what is wrong, where result and arrays do not fit one another.
    """

    read: Callable[[Path, Mapping[str, Any]], Arrays]
    check: Callable[[Mapping[str, Any], Arrays], None]


def read_run(path: Path) -> Run:
    """The run in a directory that `--out` wrote, or in a file of what `--json` printed.

    Raises:
        InputError: it is not there, not a run, not finished, of a command this version does not know, damaged, or too
            large.
    """
    file, shown = _result_file(path), _short(path)
    try:
        result = read_result(file)
    except OSError as error:
        raise InputError(f"{shown}: {_short(file.name)} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        why = "" if isinstance(error, UnicodeDecodeError | json.JSONDecodeError) else f" ({error})"
        raise InputError(f"{shown}: {_short(file.name)} is damaged{why}; make the run again.") from error
    kind = _kind_of(result, shown)
    _validate(kind, result, shown)
    try:
        arrays = KINDS[kind].read(path, result) if path.is_dir() else {}
        KINDS[kind].check(result, arrays)
    except InputError as error:
        raise InputError(f"{shown}: {error}") from error
    except (ValueError, OSError, KeyError) as error:
        raise InputError(
            f"{shown}: its files do not belong together or are damaged ({visible(str(error))[:200]}); make the run "
            "again."
        ) from error
    return Run(os.path.basename(os.path.realpath(path)) or str(path), kind, result, arrays)


def read_printed(path: Path) -> str:
    """The table that a run's command printed, safe to show.

    Raises:
        InputError: it is no run, or one that keeps no table.
    """
    _result_file(path)
    shown = _short(path)
    if not path.is_dir():
        raise InputError(f"{shown} is a file, and only a directory that --out wrote keeps the table; give that.")
    try:
        text = read_table(path / TABLE)
    except FileNotFoundError as error:
        raise InputError(
            f"{shown} holds no {TABLE}, which older versions did not write; leave out --text for a page of it."
        ) from error
    except OSError as error:
        raise InputError(f"{shown}: {TABLE} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise InputError(f"{shown}: {TABLE} is damaged; leave out --text for a page of the run.") from error
    return "\n".join(visible(line) for line in text.split("\n"))


def _result_file(path: Path) -> Path:
    """Where the result of a run lies.

    Raises:
        InputError: there is none.
    """
    shown = _short(path)
    if not exists(path):
        raise InputError(f"{shown} does not exist; give a directory that --out wrote.")
    if not path.is_dir():
        return path
    if os.path.lexists(path / RESULT):
        if path.joinpath(RESULT).is_symlink():
            raise InputError(f"{shown}: its {RESULT} is a link, which --out never writes; is this run someone's trick?")
        return path / RESULT
    if (path / UNFINISHED).is_dir():
        raise InputError(f"{shown} holds a run that is not finished; repeat its command to finish it.")
    raise InputError(f"{shown} holds no {RESULT}, so it is not a run; give a directory that --out wrote.")


def _short(name: object) -> str:
    """A name or path in a message: visible, and of a long one the two ends."""
    text = visible(str(name))
    return text if len(text) <= 120 else f"{text[:58]}...{text[-58:]}"


def _kind_of(result: Mapping[str, Any], path: str) -> str:
    schema = result.get("schema")
    if not isinstance(schema, str) or not schema.startswith("jaxaudit."):
        raise InputError(f"{path}: its result does not say that jaxaudit wrote it; give a directory that --out wrote.")
    kind, _, version = schema.removeprefix("jaxaudit.").partition("/")
    if kind not in KINDS or version != "1":
        raise InputError(
            f"{path}: this version cannot show a {visible(schema[:60])!r} result; it knows {', '.join(KINDS)}, "
            "version 1. Is a newer jaxaudit needed?"
        )
    return kind


@cache
def _validator(kind: str) -> Callable[[Any], Any]:
    import fastjsonschema

    schema = json.loads((files(f"jaxaudit.report.{kind}") / "schema.json").read_text(encoding="utf-8"))
    # The draft that the library knows best; our schemas use nothing that has changed since.
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    whole = fastjsonschema.compile(schema)
    provenance = fastjsonschema.compile(PROVENANCE)

    def validate(result: Any) -> None:
        whole(result)
        provenance(result["provenance"])

    return validate


def _validate(kind: str, result: Mapping[str, Any], path: str) -> None:
    import fastjsonschema

    try:
        _validator(kind)(result)
    except fastjsonschema.JsonSchemaValueException as error:
        # Its message may quote the whole value.
        where = ".".join(visible(str(each))[:40] for each in error.path[1:9]) or "the whole"
        raise InputError(
            f"{path}: its result is not as jaxaudit writes it (at {where}: {visible(error.message)[:120]}); make the "
            "run again."
        ) from error


def _confidences(directory: Path, result: Mapping[str, Any]) -> Arrays:
    targets = [f"target_{place}" for place in range(len(result["targets"]))]
    return read_archive(directory / "confidences.npz", ["query", "calibration", *targets])


def _outputs(directory: Path, result: Mapping[str, Any]) -> Arrays:
    scores = [f"scores_{attack['name']}" for attack in result["attacks"]]
    return read_archive(directory / "outputs.npz", ["truth", *scores])


def _records(directory: Path, result: Mapping[str, Any]) -> Arrays:
    """PDTP and seed floor of every record, where the result lists the riskiest only."""
    if len(result["records"]) == result["records_measured"]:
        return {}
    return read_columns(directory / "records.parquet", ["pdtp", "seed_floor"], result["records_measured"])


def _check_ks(result: Mapping[str, Any], arrays: Arrays) -> None:
    for target in result["targets"]:
        lengths = {len(target["rho"]["values"]), len(target["ks"]["target"]), len(target["ks"]["calibration"])}
        _demand(len(lengths) == 1, "replicates of rho and its distances differ in number")
        _demand(lengths != {0}, "a target has no replicate")
        tested = target.get("method", "rho") not in ("holdout", "shadow") or bool(target.get("usage"))
        _demand(tested, "a target's verdict rests on a test that is not there")
        _demand(target.get("method") != "ema" or target.get("ema") is not None, "a target has no EMA")
    if not arrays:
        return
    replicates = len(result["targets"][0]["rho"]["values"])
    query = arrays["query"]
    _demand(query.ndim == 2 and len(query) == replicates and query.shape[1] > 0, "query confidences are misshapen")
    _demand(arrays["calibration"].shape == query.shape, "calibration confidences are misshapen")
    for place in range(len(result["targets"])):
        _demand(arrays[f"target_{place}"].shape == query.shape[1:], f"confidences of target {place} are misshapen")
    for name in ("query", "calibration", *(f"target_{place}" for place in range(len(result["targets"])))):
        values = arrays[name]
        _demand(
            values.dtype.kind == "f" and bool(((values >= 0) & (values <= 1)).all()),
            f"confidences called {name} are not probabilities",
        )


def _check_pdtp(result: Mapping[str, Any], arrays: Arrays) -> None:
    _demand(len(result["records"]) <= result["records_measured"], "it lists more records than were measured")
    for name, values in arrays.items():
        fits = values.dtype == np.float64 and len(values) == result["records_measured"]
        _demand(fits and bool((values >= 0).all()), f"the {name} of its records are misshapen")
    reduction = result["reduction"]
    if reduction is not None:
        steps = len(reduction["removed"])
        _demand(len(reduction["max_pdtp"]) == steps + 1, "steps and values of its reduction differ in number")


def _check_attack(result: Mapping[str, Any], arrays: Arrays) -> None:
    names = [attack["name"] for attack in result["attacks"]]
    _demand(len(set(names)) == len(names), "an attack is named twice")
    for target in result["targets"]:
        _demand(set(target["accuracy"]) == set(names), "a target's accuracies are not of the attacks")
    if not arrays:
        return
    truth = arrays["truth"]
    _demand(truth.ndim == 2 and truth.dtype == bool and truth.size > 0, "the truth is misshapen")
    for name in names:
        scores = arrays[f"scores_{name}"]
        _demand(
            scores.dtype.kind == "f" and scores.shape == truth.shape and not np.isnan(scores).any(),
            f"the scores of {name} are misshapen",
        )


def _check_efficacy(result: Mapping[str, Any], arrays: Arrays) -> None:
    names = [model["name"] for model in result["models"]]
    _demand(len(set(names)) == len(names), "two weights have one name")


def _check_unlearn(result: Mapping[str, Any], arrays: Arrays) -> None:
    for method in result["methods"]:
        for name, spread in method["scores"].items():
            fits = spread is None or len(spread["values"]) == result["protocol"]["seeds"]
            _demand(fits, f"the models' scores of {name} and the seeds differ in number")
        conclusion, apart = (
            method["conclusion"],
            [p["verdict"] in ("above", "below") for p in method["places"].values()],
        )
        _demand((conclusion is None) == (method["name"] in REFERENCES), "a conclusion is missing or out of place")
        _demand(conclusion is None or (conclusion == "differs") == any(apart), "a conclusion is not that of its places")
    measured = [method["scores"]["efficacy"] is not None for method in result["methods"]]
    _demand(any(measured), "no method has an efficacy")


def _nothing(directory: Path, result: Mapping[str, Any]) -> Arrays:
    return {}


def _demand(holds: bool, wrong: str) -> None:
    if not holds:
        raise ValueError(wrong)


KINDS = {
    "ks": Kind(_confidences, _check_ks),
    "pdtp": Kind(_records, _check_pdtp),
    "efficacy": Kind(_nothing, _check_efficacy),
    "unlearn": Kind(_nothing, _check_unlearn),
    "attack": Kind(_outputs, _check_attack),
}
