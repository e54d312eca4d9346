"""Runs `jaxaudit scores open-unlearning` and `lm-eval`: joins logs of several models to a table."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from jaxaudit.cli.job import Summary
from jaxaudit.cli.progress import say
from jaxaudit.cli.scores.command import LMEvalOptions, OpenUnlearningOptions
from jaxaudit.cli.scores.written import written_summary
from jaxaudit.data.scores.copies import refuse_repeated
from jaxaudit.data.scores.joined_logs import model_names, table_of_logs
from jaxaudit.data.scores.lm_eval import read_samples
from jaxaudit.data.scores.names import ModelRole
from jaxaudit.data.scores.open_unlearning import EvaluationLog, Set, read_log
from jaxaudit.data.scores.table import score_table
from jaxaudit.data.scores.writing import write_scores
from jaxaudit.errors import InputError


def join_logs(options: OpenUnlearningOptions) -> Summary:
    """Writes one table of the logs of open-unlearning of all models."""
    return _joined(options, partial(read_log, muse=options.muse))


def join_samples(options: LMEvalOptions) -> Summary:
    """Writes one table of the samples of lm-evaluation-harness of all models."""
    named_tasks: dict[Set, str | None] = {"query": options.query, "holdout": options.holdout}
    named_tasks["members"] = options.members
    tasks: dict[Set, str] = {of: task for of, task in named_tasks.items() if task is not None}
    if len({*tasks.values()}) < len(tasks):
        raise InputError("one task is given as two sets: a copy of a record hides use. Give each set its own task.")
    return _joined(options, lambda folder: read_samples(folder, tasks))


def _joined(options: OpenUnlearningOptions | LMEvalOptions, read: Callable[[Path], EvaluationLog]) -> Summary:
    paths: dict[ModelRole, Sequence[Path]] = {"target": options.targets}
    paths |= {"before": options.known_models.before, "baseline": options.known_models.baseline}
    paths |= {"unused": options.known_models.unused, "used": options.known_models.used}
    refuse_repeated(paths)
    logs: dict[ModelRole, dict[str, EvaluationLog]] = {
        role: dict(zip(model_names(role_paths), map(read, role_paths), strict=True))
        for role, role_paths in paths.items()
        if role_paths
    }
    for log in (log for of_role in logs.values() for log in of_role.values() if log.note):
        say(log.note)
    if options.records_per_group is None:
        # Of models that used none of whole authors, 15% were accused so, in place of 5% (`experiments/score_rates.py`).
        say(
            "No groups are stated. If records were forgotten in whole groups, such as authors, say how many in a row "
            "are of one (--records-per-group): else models that never used them are accused far too often."
        )
    joined_table = table_of_logs(logs, options.records_per_group)
    # What cannot be judged is not written.
    score_table(joined_table.columns, name=options.scores.name)
    write_scores(options.scores, joined_table.columns)
    for part, count in joined_table.left_out.items():
        if count:
            say(
                f"{count:,} of {count + joined_table.records[part]:,} records of {part} are left out: some log has no "
                "finite number of a score of theirs."
            )
    for column in joined_table.empty:
        say(f"{column}: no record has a finite number; the column is empty there. Did the model diverge?")
    for column in joined_table.constant:
        say(f"{column} is left out: it has the same number for all records.")
    records = ", ".join(f"{count:,} records of {part}" for part, count in joined_table.records.items())
    models = ", ".join(f"{len(role_paths)} {role}" for role, role_paths in paths.items() if role_paths)
    scores = dict.fromkeys(column.rpartition(".")[2] for column in joined_table.columns if "." in column)
    return written_summary(options.scores, f"{records}. Models: {models}.", f"Scores: {', '.join(scores)}.")
