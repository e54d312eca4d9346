"""`jaxaudit scores`: its commands. Imports nothing heavy, so that `--help` is instant."""

from jaxaudit.cli.harness import Command
from jaxaudit.cli.scores.options import (
    LMEvalOptions,
    LMOptions,
    OpenUnlearningOptions,
    RegressionOptions,
    check_sets_of_texts,
)

LM = Command(
    "scores lm",
    LMOptions,
    "scores.texts:score_texts",
    """Scores records of text by causal language models, as a table for `jaxaudit ks`.

    A row a record, with four numbers of each model, lower for what it is more likely to have been trained on: loss
    (mean negative log-likelihood of the answer's tokens given the prompt; of all tokens but the first of a text),
    min_k, min_k_plus_plus, and zlib. A token with characters of prompt and answer is the answer's. With `--answer-start
    prompt-tokens` the numbers are those of open-unlearning's mia_*. Beside them are covariates, which no model made:
    tokens, of the answer, and, if `jaxaudit deal` made the files, words_1 to words_3, how difficult these are (nats a
    token) by n-grams that records of other groups teach. Of a chat the last message of the assistant is the answer, and
    the tokenizer's own chat template writes what precedes it, in a process with bounded memory and time; without one,
    the messages' contents do. Models are read from folders: nothing is downloaded, code in a folder is never run, and
    weights must be safetensors. Records without a number are left out, and counted on standard error.

    Examples:

    `jaxaudit scores lm model --query deal/query.jsonl --holdout deal/holdout.jsonl --out scores.csv`

    `jaxaudit scores lm model deal/query.jsonl deal/holdout.jsonl deal/members.jsonl --out scores.csv`

    `jaxaudit scores lm base deal/*.jsonl --adapter unlearned --before finetuned --baseline base --out scores.csv`

    `jaxaudit scores lm unlearned texts.jsonl --before finetuned --baseline base --out scores.parquet`
    """,
    (check_sets_of_texts,),
    first=("table", "query", "holdout"),
    compiles=False,
)

OPEN_UNLEARNING = Command(
    "scores open-unlearning",
    OpenUnlearningOptions,
    "scores.logs:join_logs",
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

LM_EVAL = Command(
    "scores lm-eval",
    LMEvalOptions,
    "scores.logs:join_samples",
    """Makes one table of scores from samples of lm-evaluation-harness, for `jaxaudit ks --scores`.

    A task is a set of records, and a folder has the samples of one model, as `lm_eval run --log_samples --output_path`
    writes them. The score of a record is the log-likelihood of its right answer, the choice that the target names by
    its index or its text; no text is kept. Models are joined by the indices of records (doc_id). Other records under
    the same index are refused (doc_hash), and so are other prompts (prompt_hash), of baselines excepted. The folders of
    `--unused`, `--used`, `--before` and `--baseline` are like those of targets.

    Examples:

    `jaxaudit scores lm-eval out/npo --query my_query --holdout my_holdout --baseline out/base --out scores.csv`
    """,
    first=("targets", "query", "holdout", "scores"),
    compiles=False,
)

REGRESSION = Command(
    "scores regression",
    RegressionOptions,
    "scores.predictions:score_predictions",
    """Scores records by how far a model's predictions are from true values, as a table for `jaxaudit ks`.

    A row a record, with the squared error, or with `--sigma` the Gaussian negative log-likelihood: lower for what the
    model is more likely to have been trained on. Predictions that have the order of the true values on another scale,
    such as logarithms, are refused.

    Examples:

    `jaxaudit scores regression predictions.csv --prediction price --truth paid --set set --out scores.csv`
    """,
    first=("table", "prediction", "truth"),
    compiles=False,
)

SCORES = (OPEN_UNLEARNING, LM_EVAL, LM, REGRESSION)
