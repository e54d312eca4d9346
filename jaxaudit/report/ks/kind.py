"""Runs of `ks`, as they are read, checked, shown and compared."""

from collections.abc import Sequence

from jaxaudit.report.kind import Arrays, Kind, Stored, demand
from jaxaudit.report.ks.record import KSRecord, Target, rho_of, with_rho
from jaxaudit.report.ks.view import ks_part
from jaxaudit.report.page import Picture
from jaxaudit.report.run import Run


def _stored(result: KSRecord) -> Stored:
    return Stored("confidences.npz", (*_models(result), *_names(result)))


def _models(result: KSRecord) -> tuple[str, ...]:
    """The arrays of shadow models, without which there is no rho."""
    return () if result.noise_floor is None else ("query", "calibration")


def _names(result: KSRecord) -> tuple[str, ...]:
    return tuple(f"target_{place}" for place in range(len(result.targets)))


def _check(result: KSRecord, arrays: Arrays) -> None:
    demand(bool(result.targets), "it has no target")
    for target in result.targets:
        _check_rho(target, made=result.noise_floor is not None)
        tests = [test.name for test in target.tests]
        demand(bool(tests) and tests[0] == target.method, "a target's verdict rests on a test that is not there")
        demand(target.verdict == target.finding.verdict == target.tests[0].finding.verdict, "a target has two verdicts")
        numbers = {*(usage.method for usage in target.usage), *(("ema",) if target.ema else ())}
        demand(numbers <= set(tests), "a target has numbers of no test")
        demand(("rho" in tests) == (target.rho is not None), "a target has rho without its test, or the reverse")
    query_data = result.provenance.data
    other = "members" if "members" in query_data and "calibration" not in query_data else "calibration"
    for role in ("query", other, *({"reference"} & query_data.keys())):
        each = query_data.get(role)
        demand(isinstance(each, dict) and type(each.get("records")) is int and "name" in each, f"it has no {role} set")
    if arrays:
        _check_arrays(result, arrays)


def _check_rho(target: Target, *, made: bool) -> None:
    rho = rho_of(target)
    if rho is None:
        parts = (target.paper_rule, target.rho, target.rho_verdict, target.ks, target.controls)
        demand(not made and all(part is None for part in parts), "a part of rho is missing")
        return
    demand(made, "there is rho without a noise floor")
    lengths = {len(rho.rho.values), len(rho.ks.target), len(rho.ks.calibration)}
    demand(len(lengths) == 1, "replicates of rho and its distances differ in number")
    demand(lengths != {0}, "a target has no replicate")


def _check_arrays(result: KSRecord, arrays: Arrays) -> None:
    shape = arrays["target_0"].shape
    for _, rho in with_rho(result.targets):
        query = arrays["query"]
        demand(query.ndim == 2 and len(query) == len(rho.rho.values), "query confidences are misshapen")
        demand(arrays["calibration"].shape == query.shape, "calibration confidences are misshapen")
        shape = query.shape[1:]
    demand(len(shape) == 1 and shape[0] > 0, "confidences are misshapen")
    for name in _names(result):
        demand(arrays[name].shape == shape, f"confidences called {name} are misshapen")
    for name in (*_models(result), *_names(result)):
        values = arrays[name]
        fits = values.dtype.kind == "f" and bool(((values >= 0) & (values <= 1)).all())
        demand(fits, f"confidences called {name} are not probabilities")


def _compared(runs: Sequence[Run[KSRecord]]) -> tuple[Picture, ...]:
    from jaxaudit.report.ks.pictures import compared_picture

    made = [run for run in runs if run.result.noise_floor is not None]
    return (compared_picture(made),) if len(made) > 1 else ()


KS = Kind("ks", KSRecord, ks_part, _check, _stored, _compared)
