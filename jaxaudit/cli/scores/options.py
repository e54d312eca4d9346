"""The options of `jaxaudit scores`. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from pathlib import Path

from jaxaudit.cli.options import group, option
from jaxaudit.cli.parsers import parse_template
from jaxaudit.errors import InputError

MODELS = "Models of known truth"


def _claim(path: Path) -> None:
    """Rejects a table of scores that could not be written, before any work is done."""
    from jaxaudit.data.scores.writing import claim_scores

    claim_scores(path)


@dataclass(frozen=True)
class LMOptions:
    """All options of the command."""

    model: Path = option(
        "Folder of the target, a causal model of transformers with its tokenizer, as save_pretrained writes them.",
        default=...,
        argument=True,
        names="file",
        usual="Folder of the target, a causal language model.",
    )
    texts: tuple[Path, ...] = option(
        "Records as JSON Lines or a JSON array, gzipped or not, instead of files by set. Each line has messages (or "
        "conversations), prompt and completion, instruction and output, prompt or question and answer, or text; set "
        "(query, holdout, members or reference), where the file's name does not say it, as that of query.jsonl; and, "
        "where known, group, pair and index.",
        default=(),
        argument=True,
        names="file",
        usual="Records with sets, as JSON Lines.",
    )
    adapter: Path | None = option(
        "Folder of an adapter (LoRA) that peft wrote: the target is MODEL with this adapter. Folders of other models "
        "may then be adapters of MODEL, too.",
        names="file",
        usual="The target is MODEL with this adapter.",
    )
    query: Path | None = option("The query set: records in question, as TEXTS without set.", names="file")
    holdout: Path | None = option("Records of the same source that nobody trained on.", names="file")
    members: Path | None = option("Records of the same source that stay in training.", names="file")
    table: Path = option(
        "Write the scores to this new .csv or .parquet file.", "--out", default=..., check=_claim, decides=False
    )
    baseline: tuple[Path, ...] = option(
        "Folder of a model that used neither query set nor holdout. Repeatable.",
        default=(),
        names="file",
        usual="A model that used neither set.",
    )
    before: tuple[Path, ...] = option(
        "Folder of the target before a deletion. Repeatable.",
        default=(),
        names="file",
        usual="The target before a deletion.",
    )
    unused: tuple[Path, ...] = option(
        "Folder of a model known to have been trained without the query set. Repeatable.",
        default=(),
        names="file",
        usual="A model known not to have used the query set.",
    )
    used: tuple[Path, ...] = option(
        "Folder of a model known to have been trained with the query set. Repeatable.",
        default=(),
        names="file",
        usual="A model known to have used the query set.",
    )
    template: str | None = option(
        "Text before an answer, as the models were trained on it: {} is the prompt or question, \\n a line break. "
        "[default: a prompt as it is; a question as 'Question: {}\\nAnswer: '; a chat by the chat template of the "
        "tokenizer]",
        check=parse_template,
        usual="Text before an answer.",
    )
    answer_start: str = option(
        "Where an answer begins: at the first token with a character of it (characters), or behind as many tokens as "
        "the prompt has alone (prompt-tokens), as open-unlearning counts: that leaves out the first word where the "
        "tokenizer joins it with the blank before it.",
        default="characters",
        choices=("characters", "prompt-tokens"),
        usual="Where an answer begins.",
    )
    precision: str | None = option(
        "Type of the numbers of weights and activations. [default: as each config.json says, else float32]",
        choices=("float32", "bfloat16", "float16"),
    )
    keep_text: bool = option(
        "Also write each record's text, for the check whether records alone tell the sets apart.",
        default=False,
        decides=False,
        usual="Also write each record's text.",
    )
    words: bool = option(
        "Whether to add covariate.words_1 to _3: how difficult the words of each answer are, by n-grams of records of "
        "other groups. Only of files that `jaxaudit deal` made: words of sets of two sources would accuse.",
        "--words/--no-words",
        default=True,
    )


def check_sets_of_texts(options: LMOptions) -> None:
    files = (options.query, options.holdout, options.members)
    if (not options.texts) is (files == (None, None, None)):
        raise InputError(
            "give the records either as TEXTS, with a set in each line or in the file's name, or as --query, --holdout "
            "and --members."
        )


@dataclass(frozen=True)
class KnownModels:
    """Logs of models of which is known what they were trained on."""

    unused: tuple[Path, ...] = option(
        "Log of a model trained without the forget set, such as a retain model. Repeat it for several: one says "
        "nothing of the spread between seeds.",
        default=(),
        metavar="LOG",
        names="file",
        usual="A model known not to have used the query set.",
    )
    used: tuple[Path, ...] = option(
        "Log of a model trained with all of the forget set, such as TOFU's full model.",
        default=(),
        metavar="LOG",
        names="file",
        usual="A model known to have used the query set.",
    )
    before: tuple[Path, ...] = option(
        "Log of the target itself before the deletion.",
        default=(),
        metavar="LOG",
        names="file",
        usual="The target before a deletion.",
    )
    baseline: tuple[Path, ...] = option(
        "Log of a model that used neither the forget set nor the holdout, such as the base model before fine-tuning.",
        default=(),
        metavar="LOG",
        names="file",
        usual="A model that used neither set.",
    )


@dataclass(frozen=True)
class OpenUnlearningOptions:
    """All options of `jaxaudit scores open-unlearning`."""

    targets: tuple[Path, ...] = option(
        "Logs of the models in question: TOFU_EVAL.json or MUSE_EVAL.json of each, or eval_log_forget.json or "
        "eval_log_aggregated.json of TOFU's own code.",
        default=...,
        argument=True,
        metavar="TARGET_EVAL.json",
        names="file",
    )
    known_models: KnownModels = group(MODELS, KnownModels())
    records_per_group: int | None = option(
        "Records of a group, where each block of so many consecutive records is one: 20 for TOFU's authors. "
        "[default: no groups]",
        minimum=2,
        maximum=1_000_000,
        usual="Records of a group.",
    )
    muse: str = option(
        "Of MUSE's logs, which records of the forget set: privleak are the texts of the attacks (mia_*), beside a "
        "holdout; verbmem passages to complete (ROUGE-L, extraction strength, exact memorisation); knowmem questions "
        "(ROUGE-L). The last two have no holdout, so two models or more that never used the forget set must tell "
        "(--unused).",
        default="privleak",
        choices=("privleak", "verbmem", "knowmem"),
        usual="Which records of MUSE's logs.",
    )
    scores: Path = option(
        "Write the table into this new file: .csv or .parquet.",
        "--out",
        default=...,
        metavar="FILE",
        check=_claim,
        decides=False,
    )


@dataclass(frozen=True)
class LMEvalOptions:
    """All options of `jaxaudit scores lm-eval`."""

    targets: tuple[Path, ...] = option(
        "Folders of the models in question, each with a samples_TASK_DATE.jsonl of every task.",
        default=...,
        argument=True,
        metavar="FOLDER",
        names="file",
    )
    query: str = option("Task of the query set: records in question.", default=..., metavar="TASK")
    holdout: str | None = option("Task of records of the same source that nobody trained on.", metavar="TASK")
    members: str | None = option("Task of records of the same source that stay in training.", metavar="TASK")
    known_models: KnownModels = group(MODELS, KnownModels())
    records_per_group: int | None = option(
        "Records of a group, where each block of so many consecutive records is one. [default: no groups]",
        minimum=2,
        maximum=1_000_000,
        usual="Records of a group.",
    )
    scores: Path = option(
        "Write the table into this new file: .csv or .parquet.",
        "--out",
        default=...,
        metavar="FILE",
        check=_claim,
        decides=False,
    )


@dataclass(frozen=True)
class RegressionOptions:
    """All options of the command."""

    predictions: Path = option(
        "CSV with a header line, or Parquet: a row a record.", default=..., argument=True, metavar="TABLE", names="file"
    )
    table: Path = option(
        "Write the scores to this new .csv or .parquet file.", "--out", default=..., check=_claim, decides=False
    )
    prediction: str = option("Column of the target's predictions.", default=..., metavar="COLUMN")
    truth: str = option("Column of the true values.", default=..., metavar="COLUMN")
    set_column: str = option(
        "Column of the sets: query, holdout, members or reference.",
        "--set",
        default=...,
        metavar="COLUMN",
        usual="Column of the sets.",
    )
    sigma: str | None = option(
        "Column of predicted standard deviations, for a score by the Gaussian likelihood.", metavar="COLUMN"
    )
    group: str | None = option("Column of groups that were dealt whole.", metavar="COLUMN")
    covariate: tuple[str, ...] = option(
        "Column of a number that no model made, such as a size. Repeatable.", default=(), metavar="COLUMN"
    )
