"""`jaxaudit scores`: its commands, and their options. Imports nothing heavy, so that `--help` is instant."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import KNOWN_MODELS, PLAIN, option
from jaxaudit.cli.parsers import parse_template

if TYPE_CHECKING:
    from jaxaudit.data.scores.columns import ModelRole


def _claim(path: Path) -> None:
    """Rejects a table of scores that could not be written, before any work is done."""
    from jaxaudit.data.scores.table import claim_scores

    claim_scores(path)


@dataclass(frozen=True)
class TableOptions:
    """Folders, or logs, of models of which is known what they were trained on, and the table that is written."""

    baseline: tuple[Path, ...] = option(
        KNOWN_MODELS,
        "A model that used neither query set nor holdout, such as the base model before fine-tuning. Repeatable.",
        default=(),
        names="file",
    )
    before: tuple[Path, ...] = option(
        KNOWN_MODELS, "The target itself before a deletion. Repeatable.", default=(), names="file"
    )
    unused: tuple[Path, ...] = option(
        KNOWN_MODELS,
        "A model trained without the query set, such as a retain model. Repeat it for several: one says nothing of the "
        "spread between seeds.",
        default=(),
        names="file",
    )
    used: tuple[Path, ...] = option(
        KNOWN_MODELS,
        "A model trained with all of the query set, such as TOFU's full model. Repeatable.",
        default=(),
        names="file",
    )
    scores: Path = option(
        PLAIN,
        "Write the scores into this new file: .csv or .parquet.",
        "--out",
        default=...,
        metavar="FILE",
        check=_claim,
        decides=False,
    )

    def by_role(self, targets: Sequence[Path]) -> "dict[ModelRole, Sequence[Path]]":
        """The models, by what is known of them."""
        return {
            "target": targets,
            "baseline": self.baseline,
            "before": self.before,
            "unused": self.unused,
            "used": self.used,
        }


@dataclass(frozen=True)
class LMOptions(TableOptions):
    """All options of the command."""

    model: Path = option(
        PLAIN,
        "Folder of the target, a causal model of transformers with its tokenizer, as save_pretrained writes them.",
        default=...,
        argument=True,
        names="file",
    )
    texts: tuple[Path, ...] = option(
        PLAIN,
        "Records as JSON Lines, gzipped or not. Each line has messages, prompt and completion, instruction and output, "
        "prompt or question and answer, or text; set (query, holdout, members or reference), where the file's name "
        "does not say it, as that of query.jsonl; and, where known, group, pair and index.",
        default=...,
        argument=True,
        names="file",
    )
    adapter: Path | None = option(
        PLAIN,
        "Folder of an adapter (LoRA) that peft wrote: the target is MODEL with this adapter. Folders of other models "
        "may then be adapters of MODEL, too.",
        names="file",
    )
    template: str | None = option(
        PLAIN,
        "Text before an answer, as the models were trained on it: {} is the prompt or question, \\n a line break. "
        "[default: a prompt as it is; a question as 'Question: {}\\nAnswer: '; a chat by the chat template of the "
        "tokenizer]",
        check=parse_template,
    )
    answer_start: Literal["characters", "prompt-tokens"] = option(
        PLAIN,
        "Where an answer begins: at the first token with a character of it (characters), or behind as many tokens as "
        "the prompt has alone (prompt-tokens), as open-unlearning counts: that leaves out the first word where the "
        "tokenizer joins it with the blank before it.",
        default="characters",
    )
    precision: Literal["float32", "bfloat16", "float16"] | None = option(
        PLAIN, "Type of the numbers of weights and activations. [default: as each config.json says, else float32]"
    )
    keep_text: bool = option(
        PLAIN,
        "Also write each record's text, for the check whether records alone tell the sets apart.",
        default=False,
        decides=False,
    )


@dataclass(frozen=True)
class JoinOptions(TableOptions):
    """What the two commands share that join what other tools left of several models."""

    records_per_group: int | None = option(
        PLAIN,
        "Records of a group, where each block of so many consecutive records is one: 20 for TOFU's authors. "
        "[default: no groups]",
        minimum=2,
        maximum=1_000_000,
    )


@dataclass(frozen=True)
class OpenUnlearningOptions(JoinOptions):
    """All options of `jaxaudit scores open-unlearning`."""

    targets: tuple[Path, ...] = option(
        PLAIN,
        "Logs of the models in question: TOFU_EVAL.json or MUSE_EVAL.json of each.",
        default=...,
        argument=True,
        metavar="TARGET_EVAL.json",
        names="file",
    )
    muse: Literal["privleak", "verbmem", "knowmem"] = option(
        PLAIN,
        "Of MUSE's logs, which records of the forget set: privleak are the texts of the attacks (mia_*), beside a "
        "holdout; verbmem passages to complete (ROUGE-L, extraction strength, exact memorisation); knowmem questions "
        "(ROUGE-L). The last two have no holdout, so two models or more that never used the forget set must tell "
        "(--unused).",
        default="privleak",
    )


@dataclass(frozen=True)
class LMEvalOptions(JoinOptions):
    """All options of `jaxaudit scores lm-eval`."""

    targets: tuple[Path, ...] = option(
        PLAIN,
        "Folders of the models in question, each with a samples_TASK_DATE.jsonl of every task.",
        default=...,
        argument=True,
        metavar="FOLDER",
        names="file",
    )
    query: str = option(PLAIN, "Task of the query set: records in question.", default=..., metavar="TASK")
    holdout: str | None = option(PLAIN, "Task of records of the same source that nobody trained on.", metavar="TASK")
    members: str | None = option(PLAIN, "Task of records of the same source that stay in training.", metavar="TASK")


LM = Command(
    "scores lm",
    LMOptions,
    "scores.run:score_texts",
    """Scores records of text by causal language models, as a table for `jaxaudit ks`.

    A row a record, with four numbers of each model, lower for what it is more likely to have been trained on: loss
    (mean negative log-likelihood of the answer's tokens given the prompt; of all tokens but the first of a text),
    min_k, min_k_plus_plus, and zlib; with `--answer-start prompt-tokens` those of open-unlearning's mia_*. Covariates,
    which no model made: tokens, of the answer, prompt_tokens, and, if `jaxaudit deal` made the files, words_1 to
    words_3, how difficult the answer's are (nats a token) by n-grams of other groups' records. Of a chat the last
    message of the assistant is the answer, after what the tokenizer's own chat template writes. Models are read from
    folders: nothing is downloaded, code in a folder is never run, and weights must be safetensors. Records without a
    number are left out, and counted on standard error.

    Examples:

    `jaxaudit scores lm model deal/query.jsonl deal/holdout.jsonl deal/members.jsonl --out scores.csv`

    `jaxaudit scores lm base deal/*.jsonl --adapter unlearned --before finetuned --baseline base --out scores.csv`
    """,
    first=("scores",),
    compiles=False,
)

OPEN_UNLEARNING = Command(
    "scores open-unlearning",
    OpenUnlearningOptions,
    "scores.run:join_logs",
    """Makes one table of scores from evaluation logs of open-unlearning (TOFU, MUSE), for `jaxaudit ks --scores`.

    A row is a record of the forget set (`query`) or of the holdout. Taken are losses, truth ratios, attacks (mia_*) and
    memorisation; texts are not. Logs are joined by the indices of records, and logs of other records are refused.
    Models are named after the file of their log, or its folder.

    Examples:

    `jaxaudit scores open-unlearning npo/evals/TOFU_EVAL.json --unused seed_1/TOFU_EVAL.json
    --unused seed_2/TOFU_EVAL.json --used full/TOFU_EVAL.json --records-per-group 20 --out scores.parquet`
    """,
    first=("targets", "scores"),
    compiles=False,
)

LM_EVAL = Command(
    "scores lm-eval",
    LMEvalOptions,
    "scores.run:join_samples",
    """Makes one table of scores from samples of lm-evaluation-harness, for `jaxaudit ks --scores`.

    A task is a set of records, and a folder has the samples of one model, as `lm_eval run --log_samples --output_path`
    writes them, in one run of all tasks. The score of a record is the log-likelihood of its right answer, the choice
    that the target names by its index or its text. Covariates are choices, lengths and bytes packed by zlib; no text
    is kept. Models are joined by doc_id. Other records under the same index are refused (doc_hash), and so are other
    prompts (prompt_hash), but of baselines.

    Examples:

    `jaxaudit scores lm-eval out/npo --query my_query --holdout my_holdout --baseline out/base --out scores.csv`
    """,
    first=("targets", "query", "holdout", "scores"),
    compiles=False,
)

SCORES = (OPEN_UNLEARNING, LM_EVAL, LM)
