"""What a `ks` run compared, in words; and the numbers of the field that stand beside a table of scores."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxaudit.audits.ks.result import TargetResult
from jaxaudit.errors import visible
from jaxaudit.report.numbers import percent, precise

SETS = {"query": "query", "holdout": "holdout", "members": "known member", "reference": "reference"}


def about(data: Mapping[str, Any]) -> str:
    """The sets, and where the shadow models come from."""

    def said(role: str) -> str:
        return f"{visible(str(data[role]['name']))} ({data[role]['records']:,} records)"

    if "scores" in data:
        sets = [f"{data[role]['records']:,} {words}" for role, words in SETS.items() if role in data]
        models = [f"{count} {role}" for role, count in data["scores"]["models"].items()]
        return (
            f"The table {visible(str(data['query']['name']))} has scores of {', '.join(sets)} records, by these "
            f"models: {', '.join(models)}. No model was trained."
        )
    compared = "The target's outputs are compared with theirs."
    if "shadows" in data:
        bank = data["shadows"]
        roles = {"query": "query set", "holdout": "holdout", "calibration": "calibration set"}
        *first, last = [f"the {roles[role]} ({data[role]['records']:,})" for role in roles if role in data]
        return (
            f"The {bank['models']:,} shadow models of {visible(str(bank['name']))} were trained on records of "
            f"{', '.join(first)}{' and ' if first else ''}{last}. {compared}"
        )
    if "calibration" not in data:
        return (
            f"The query set is {said('query')}. The target's outputs on it are compared with those on the holdout, "
            f"{said('holdout')}, which nobody trained on, and on {said('members')}, which it is known to have used. No "
            "shadow model was trained."
        )
    if "reference" in data:
        further = f"Those of the reference test were also trained on a share of the reference, {said('reference')}."
        compared = f"{further} {compared}"
    return (
        f"The query set is {said('query')}. Shadow models were trained on it, and on {said('calibration')}, which "
        f"shares no record with it. {compared}"
    )


def field_numbers(targets: Sequence[TargetResult]) -> list[str]:
    """Forget quality and privleak, and what they are between retrained models."""
    lines = []
    for target in targets:
        numbers = {
            "forget quality": None if target.forget_quality is None else precise(target.forget_quality),
            "privleak": None if target.privleak is None else f"{target.privleak:.1f}%",
        }
        said = [f"{name} {value}" for name, value in numbers.items() if value is not None]
        if said:
            lines.append(f"{visible(target.name)}: {', '.join(said)} (open-unlearning's numbers; they decide nothing).")
    worth = next((target.retrained for target in targets if target.retrained is not None), None)
    if worth is not None and worth.share_below is not None:
        lines.append(
            f"Forget quality between {worth.models} retrained models: below {worth.nominal:g} for "
            f"{percent(worth.share_below)} of pairs; a p-value at its level would be so for {percent(worth.nominal)}."
        )
    return lines
