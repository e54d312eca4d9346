"""`jaxaudit scores open-unlearning`: a table of scores from evaluation logs of open-unlearning."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jaxaudit.cli.harness import Command, Summary
from jaxaudit.cli.options import group, option
from jaxaudit.cli.progress import say
from jaxaudit.errors import visible

if TYPE_CHECKING:
    from jaxaudit.data.scores.joined_logs import Joined
    from jaxaudit.data.scores.open_unlearning import EvaluationLog
    from jaxaudit.data.scores.table import Role

MODELS = "Models of known truth"


def _claim(path: Path) -> None:
    from jaxaudit.data.scores.writing import claim_scores

    claim_scores(path)


@dataclass(frozen=True)
class KnownModels:
    """Logs of models of which is known what they were trained on."""

    unused: tuple[Path, ...] = option(
        (),
        "Log of a model trained without the forget set, such as a retain model. Repeat it for several: one says "
        "nothing of the spread between seeds.",
        metavar="LOG",
        names="file",
    )
    used: tuple[Path, ...] = option(
        (), "Log of a model trained with all of the forget set, such as TOFU's full model.", metavar="LOG", names="file"
    )
    before: tuple[Path, ...] = option((), "Log of the target itself before the deletion.", metavar="LOG", names="file")
    baseline: tuple[Path, ...] = option(
        (),
        "Log of a model that used neither the forget set nor the holdout, such as the base model before fine-tuning.",
        metavar="LOG",
        names="file",
    )


@dataclass(frozen=True)
class OpenUnlearningOptions:
    """All options of `jaxaudit scores open-unlearning`."""

    targets: tuple[Path, ...] = option(
        ...,
        "Logs of the models in question: TOFU_EVAL.json or MUSE_EVAL.json of each.",
        argument=True,
        metavar="TARGET_EVAL.json",
        names="file",
    )
    known: KnownModels = group(MODELS, KnownModels())
    records_per_group: int | None = option(
        None,
        "Records of a group, where each block of so many consecutive records is one: 20 for TOFU's authors. "
        "[default: no groups]",
        minimum=2,
        maximum=1_000_000,
    )
    scores: Path = option(
        ...,
        "Write the table into this new file: .csv or .parquet.",
        "--out",
        metavar="FILE",
        check=_claim,
        decides=False,
    )


def _joined_logs(options: OpenUnlearningOptions) -> Summary:
    from jaxaudit.data.scores.joined_logs import joined, model_names, refuse_repeated
    from jaxaudit.data.scores.open_unlearning import read_log
    from jaxaudit.data.scores.table import score_table
    from jaxaudit.data.scores.writing import write_scores

    known = options.known
    paths: dict[Role, Sequence[Path]] = {
        "target": options.targets,
        "before": known.before,
        "baseline": known.baseline,
        "unused": known.unused,
        "used": known.used,
    }
    refuse_repeated(paths)
    logs: dict[Role, dict[str, EvaluationLog]] = {
        role: dict(zip(model_names(given), map(read_log, given), strict=True)) for role, given in paths.items() if given
    }
    made = joined(logs, options.records_per_group)
    # What cannot be judged is not written.
    score_table(made.columns, name=options.scores.name)
    write_scores(options.scores, made.columns)
    _tell_of_missing(made)
    return Summary(_lines(options.scores, made, paths))


def _tell_of_missing(made: "Joined") -> None:
    """Says on stderr what the table does not have."""
    for part, count in made.left_out.items():
        if count:
            say(
                f"{count:,} of {count + made.records[part]:,} records of {part} are left out: some log has no finite "
                "number of a score of theirs."
            )
    for column in made.empty:
        say(f"{column}: no record has a finite number; the column is empty there. Did the model diverge?")
    for column in made.constant:
        say(f"{column} is left out: it has the same number for all records.")


def _lines(path: Path, made: "Joined", paths: "Mapping[Role, Sequence[Path]]") -> tuple[str, ...]:
    records = ", ".join(f"{count:,} records of {part}" for part, count in made.records.items())
    models = ", ".join(f"{len(given)} {role}" for role, given in paths.items() if given)
    scores = dict.fromkeys(column.rpartition(".")[2] for column in made.columns if "." in column)
    shown = visible(shlex.quote(str(path)))
    return (
        f"{shown}: {records}. Models: {models}.",
        f"Scores: {', '.join(scores)}.",
        "",
        f"To judge: jaxaudit ks --scores {shown}",
    )


OPEN_UNLEARNING = Command(
    "scores open-unlearning",
    OpenUnlearningOptions,
    _joined_logs,
    """Makes one table of scores from evaluation logs of open-unlearning (TOFU, MUSE), for `jaxaudit ks --scores`.

    A row is a record of the forget set (`query`) or of the holdout. Taken are losses, truth ratios, attacks (mia_*) and
    memorisation; texts are not. Logs are joined by the indices of records, and logs of other records are refused.
    Models are named after the file of their log, or its folder.

    Examples:

    `jaxaudit scores open-unlearning npo/evals/TOFU_EVAL.json --unused retain90/TOFU_EVAL.json --out scores.csv`

    `jaxaudit scores open-unlearning npo/evals/TOFU_EVAL.json --unused seed_1/TOFU_EVAL.json
    --unused seed_2/TOFU_EVAL.json --used full/TOFU_EVAL.json --records-per-group 20 --out scores.parquet`
    """,
    first=("targets", "scores"),
    compiles=False,
)
