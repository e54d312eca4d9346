"""Runs of `ks`, as they are read, checked, shown and compared."""

from collections.abc import Sequence

from jaxaudit.report.kind import Arrays, Kind, Stored, demand
from jaxaudit.report.ks.record import KSRecord
from jaxaudit.report.ks.view import ks_part
from jaxaudit.report.page import Picture
from jaxaudit.report.run import Run


def _stored(result: KSRecord) -> Stored:
    return Stored("confidences.npz", ("query", "calibration", *_names(result)))


def _names(result: KSRecord) -> tuple[str, ...]:
    return tuple(f"target_{place}" for place in range(len(result.targets)))


def _check(result: KSRecord, arrays: Arrays) -> None:
    demand(bool(result.targets), "it has no target")
    for target in result.targets:
        lengths = {len(target.rho.values), len(target.ks.target), len(target.ks.calibration)}
        demand(len(lengths) == 1, "replicates of rho and its distances differ in number")
        demand(lengths != {0}, "a target has no replicate")
        tests = [test.name for test in target.tests]
        demand(bool(tests) and tests[0] == target.method, "a target's verdict rests on a test that is not there")
        demand(target.verdict == target.finding.verdict == target.tests[0].finding.verdict, "a target has two verdicts")
        numbers = {*(usage.method for usage in target.usage), *(("ema",) if target.ema else ())}
        demand(numbers <= set(tests), "a target has numbers of no test")
    query_data = result.provenance.data
    for role in ("query", "calibration", *({"reference"} & query_data.keys())):
        each = query_data.get(role)
        demand(isinstance(each, dict) and type(each.get("records")) is int and "name" in each, f"it has no {role} set")
    if not arrays:
        return
    replicates = len(result.targets[0].rho.values)
    query = arrays["query"]
    demand(query.ndim == 2 and len(query) == replicates and query.shape[1] > 0, "query confidences are misshapen")
    demand(arrays["calibration"].shape == query.shape, "calibration confidences are misshapen")
    for name in _names(result):
        demand(arrays[name].shape == query.shape[1:], f"confidences called {name} are misshapen")
    for name in ("query", "calibration", *_names(result)):
        values = arrays[name]
        fits = values.dtype.kind == "f" and bool(((values >= 0) & (values <= 1)).all())
        demand(fits, f"confidences called {name} are not probabilities")


def _compared(runs: Sequence[Run[KSRecord]]) -> tuple[Picture, ...]:
    from jaxaudit.report.ks.pictures import compared_picture

    return (compared_picture(runs),) if len(runs) > 1 else ()


KS = Kind("ks", KSRecord, ks_part, _check, _stored, _compared)
