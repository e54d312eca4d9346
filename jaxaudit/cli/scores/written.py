"""What `jaxaudit scores` says of the table that was written, and how to judge it."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxaudit.audits.ks.group_finding import holdout_groups_needed
from jaxaudit.cli.job import Summary
from jaxaudit.data.texts import SETS


def scored_summary(path: Path, columns: Mapping[str, Any], by: str, lower: Sequence[str] = ()) -> Summary:
    """The summary of a table with these columns."""
    sets = columns["set"]
    counts = Counter(sets)
    counts_text = ", ".join(f"{name} {counts[name]:,}" for name in SETS if counts[name])
    query, holdout = (
        {group for group, of in zip(columns.get("group", ()), sets, strict=False) if of == name} for name in SETS[:2]
    )
    # With groups in both sets there is no test of whole ones; of few whole ones, none can be named.
    single = bool(query & holdout) or (bool(query) and len(holdout) >= holdout_groups_needed(len(query)))
    return written_summary(
        path, f"{len(sets):,} records ({counts_text}), scored by {by}.", lower=lower, by=" --by group" if single else ""
    )


def written_summary(path: Path, *lines: str, lower: Sequence[str] = (), by: str = "") -> Summary:
    shown = shlex.quote(str(path))
    head, *more = lines
    summary_lines = (
        f"{shown}: {head}",
        *more,
        "",
        f"To judge: {' '.join([f'jaxaudit ks --scores {shown}{by}', *(f'--lower {score}' for score in lower)])}",
    )
    return Summary(tuple(summary_lines))
