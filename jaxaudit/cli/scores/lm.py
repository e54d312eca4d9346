"""`jaxaudit scores lm`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from pathlib import Path

from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import option
from jaxaudit.cli.parsers import parse_template
from jaxaudit.errors import InputError


def claim_table(path: Path) -> None:
    """Rejects a table of scores that could not be written, before any work is done."""
    from jaxaudit.data.scores.writing import claim_scores

    claim_scores(path)


@dataclass(frozen=True)
class LMOptions:
    """All options of the command."""

    model: Path = option(
        ...,
        "Folder of the target, a causal model of transformers with its tokenizer, as save_pretrained writes them.",
        argument=True,
        names="file",
    )
    texts: Path | None = option(
        None,
        "Records as JSON Lines, gzipped or not, instead of files by set. Each line has prompt and answer, question and "
        "answer, or text; set (query, holdout, members or reference); and, where known, group, pair and index.",
        argument=True,
        names="file",
    )
    query: Path | None = option(None, "Records in question, as TEXTS without set.", names="file")
    holdout: Path | None = option(None, "Records of the same source that nobody trained on.", names="file")
    members: Path | None = option(None, "Records of the same source that stay in training.", names="file")
    table: Path = option(
        ..., "Write the scores to this new .csv or .parquet file.", "--out", check=claim_table, decides=False
    )
    baseline: tuple[Path, ...] = option(
        (), "Folder of a model that used neither query set nor holdout. Repeatable.", names="file"
    )
    before: tuple[Path, ...] = option((), "Folder of the target before a deletion. Repeatable.", names="file")
    unused: tuple[Path, ...] = option(
        (), "Folder of a model known to have been trained without the query set. Repeatable.", names="file"
    )
    used: tuple[Path, ...] = option(
        (), "Folder of a model known to have been trained with the query set. Repeatable.", names="file"
    )
    template: str | None = option(
        None,
        "Text before an answer, as the models were trained on it: {} is the prompt or question, \\n a line break. "
        "[default: a prompt as it is; a question as 'Question: {}\\nAnswer: ']",
        check=parse_template,
    )
    precision: str | None = option(
        None,
        "Numbers of weights and activations. [default: as each config.json says, else float32]",
        choices=("float32", "bfloat16", "float16"),
    )
    keep_text: bool = option(
        False, "Also write each record's text, for the check whether records alone tell the sets apart.", decides=False
    )


def _check_sets(options: LMOptions) -> None:
    """Rejects records that are given twice or not at all."""
    files = (options.query, options.holdout, options.members)
    if (options.texts is None) is (files == (None, None, None)):
        raise InputError(
            "give the records either as TEXTS, with a set in each line, or as --query, --holdout and --members."
        )


LM = Command(
    "scores lm",
    LMOptions,
    "scores.lm_run:score",
    """Scores records of text by causal language models, as a table for `jaxaudit ks`.

    A row a record, with four numbers of each model, lower for what it is more likely to have been trained on: loss
    (mean negative log-likelihood of the answer's tokens given the prompt; of all tokens but the first of a text),
    min_k, min_k_plus_plus, and zlib. They are those of open-unlearning's mia_*. Models are read from folders: nothing
    is downloaded, code in a folder is never run, and weights must be safetensors. Records without a number are left
    out, and counted on standard error.

    Examples:

    `jaxaudit scores lm model --query deal/query.jsonl --holdout deal/holdout.jsonl --out scores.csv`

    `jaxaudit scores lm unlearned texts.jsonl --before finetuned --baseline base --out scores.parquet`
    """,
    (_check_sets,),
    first=("table", "query", "holdout"),
    compiles=False,
)
