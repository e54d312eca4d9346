"""Of every kind of run: what is no such result, and numbers that do not belong together, are refused."""

from collections.abc import Callable
from typing import Any

import jsonschema
import msgspec
import pytest
from support.saved_runs import RUNS, as_json
from support.saved_runs.unlearn import CHALLENGE, unlearn_audit, unlearn_run

from jaxaudit.json_types import from_builtins
from jaxaudit.report.kinds import run_kind, schema_of

Change = Callable[[dict[str, Any]], Any]
"""Changes what a result is in JSON."""


def merged(value: Any, change: Any) -> Any:
    """The same with these fields; of lists, the last is changed; a score that there is not is as one that there is."""
    if isinstance(change, dict) and isinstance(value, dict):
        return {**value, **{name: merged(value.get(name, value.get("bound")), new) for name, new in change.items()}}
    return [*value[:-1], merged(value[-1], change[0])] if isinstance(change, list) else change


def told() -> Any:
    """A run of `unlearn` with seeds enough to tell models from retrained ones."""
    return unlearn_run(audit=unlearn_audit({"efficacy": 9.0}, {"mine": {"efficacy": 0.1}, "other": {}}, told=CHALLENGE))


@pytest.mark.parametrize("kind", RUNS)
def test_other_keys_and_types_are_refused(kind: str):
    value, record = as_json(RUNS[kind]()), run_kind(kind).record
    known_to_the_schema = ({"odd": 1}, {"finding": 1})
    for change in (*known_to_the_schema, {"schema": f"jaxaudit.{kind}/1"}):
        with pytest.raises(msgspec.ValidationError):
            from_builtins(record, {**value, **change})
    for change in known_to_the_schema:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**value, **change}, schema_of(kind))


def unmeasured(value: dict[str, Any]) -> None:
    for method in value["methods"]:
        method["scores"]["efficacy"] = None


UNFIT: dict[str, tuple[tuple[Change, str], ...]] = {
    "power": (
        (lambda v: v["sizes"].clear(), "not one of its sizes"),
        (lambda v: v["sizes"][0]["chances"].pop(), "different fractions"),
        (lambda v: v.update(fraction=0.0), "not above 0"),
        (lambda v: v["sizes"][0]["chances"][0].update(chance_noticed=1.5), "not between 0 and 1"),
        (lambda v: v["conclusions"].pop(), "not those of its sizes"),
    ),
    "pdtp": (
        (lambda v: v.update(records_measured=39), "^it|^its"),
        (lambda v: v["finding"].update(verdict="publish"), "^it|^its"),
        (lambda v: v.update(publish=True), "^it|^its"),
        (lambda v: v["distribution"].pop(), "^it|^its"),
        (lambda v: [bar.update(records=0) for bar in v["distribution"]], "^it|^its"),
        (lambda v: v.update(reduction={"removed": [1], "max_pdtp": [1.0]}), "^steps"),
    ),
    "efficacy": (
        (lambda v: v["models"].clear(), "it has no weights"),
        (lambda v: v["models"][1].update(name=v["models"][0]["name"]), "or two have one name"),
        (lambda v: v["models"][1].update(role="judged"), "are to be judged"),
        (lambda v: v["models"][1]["layers"].clear(), "different layers"),
        (lambda v: v.update(records_measured=2), "more records than were measured"),
        (lambda v: v["records"][0]["information"].clear(), "is not of the weights"),
    ),
    "unlearn": (
        (lambda v: v["methods"].append(v["methods"][3]), "two methods have one name"),
        (lambda v: v.update(methods=v["methods"][3:]), "no original"),
        (unmeasured, "no method has an efficacy"),
        (lambda v: v["methods"][0]["scores"]["bound"]["values"].pop(), "differ in number"),
        (lambda v: v["methods"][3].update(finding=None), "missing or out of place"),
        (lambda v: v["methods"][3]["finding"].update(verdict="inconclusive"), "not that of its places"),
        (lambda v: v["methods"][3]["finding"].update(verdict="publish"), "none of a method"),
        (lambda v: v["methods"][3].update(places={}), "not that of its places"),
        (lambda v: v["finding"].update(verdict="inconclusive"), "its finding is that of no method"),
        (lambda v: v["methods"][3].update(u_lira=None), "one of two comparisons"),
        (lambda v: v["methods"][3]["challenge"]["epsilon"].pop(), "of other records"),
        (lambda v: v["methods"][2].update(challenge=None, u_lira=None), "compared with retraining, and it is not"),
    ),
    "unlearn_outputs": (
        (lambda v: v["methods"].append(v["methods"][2]), "two methods have one name"),
        (lambda v: v["methods"].pop(0), "does not begin with retrained"),
        (lambda v: v.update(methods=v["methods"][:2]), "no method"),
        (lambda v: v["methods"][2]["test_accuracy"]["values"].pop(), "differ in number"),
        (lambda v: v["methods"][2].update(finding=None), "missing or out of place"),
        (lambda v: v["methods"][2]["finding"].update(verdict="publish"), "none of a method"),
        (lambda v: v["methods"][2].update(u_lira=None), "one of two comparisons"),
        (lambda v: v["methods"][2]["challenge"]["epsilon"].pop(), "of other records"),
        (lambda v: v["protocol"].update(compared=0), "there are too few"),
        (lambda v: v["methods"][3]["finding"].update(verdict="distinguishable"), "that were not compared"),
        (lambda v: v["finding"].update(verdict="not distinguishable"), "its finding is that of no method"),
        (lambda v: v["methods"][0].update(challenge=None, u_lira=None), "compared with retraining, and it is not"),
    ),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_numbers_that_do_not_belong_together_are_refused(kind: str):
    for change, message in UNFIT[kind]:
        value = as_json(told() if kind == "unlearn" else RUNS[kind]())
        change(value)
        with pytest.raises(ValueError, match=message):
            run_kind(kind).check(from_builtins(run_kind(kind).record, value), {})


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *(("ks", {"targets": [{wrong: value}]}) for wrong, value in (("verdict", "maybe"), ("name", 3), ("extra", 1))),
        *(("ks", {"targets": [{wrong: value}]}) for wrong, value in (("tests", 1), ("finding", None))),
        ("ks", {"targets": [{"truth": {"used_fraction": 2, "odd": 1}}]}),
        *(("ks", {"targets": [{"finding": {word: "fine"}}]}) for word in ("tone", "confidence", "more")),
        *(("ks", {"provenance": change}) for change in ({"command": "jaxaudit"}, {"seed": "7"}, {"more": 1})),
        *(("pdtp", {"records": [{wrong: value}]}) for wrong, value in (("direction", 2), ("class_", "a"))),
        *(("pdtp", {"max_pdtp": value}) for value in (-0.5, True, "inf", "-infinity", None, [1.0])),
        ("efficacy", {"models": [{"bound": "nan"}]}),
        # The words of older results.
        *(("unlearn", {"methods": [{"places": {"bound": {"verdict": old}}}]}) for old in ("not told apart", "differs")),
        ("unlearn", {"methods": [{"places": {"odd": {"verdict": "above"}}}]}),
    ],
)
def test_other_keys_and_types_within_a_result_are_refused(kind: str, change: dict[str, Any]):
    value = as_json(RUNS[kind]())
    changed = merged(value, change)
    with pytest.raises(msgspec.ValidationError):
        from_builtins(run_kind(kind).record, changed)
    if kind == "ks":
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(changed, schema_of(kind))
