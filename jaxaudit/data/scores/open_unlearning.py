"""Reads the numbers a record in an evaluation log of open-unlearning: `TOFU_EVAL.json`, `MUSE_EVAL.json`.

A log is `{metric: {"agg_value": number, "value_by_index": {index: {...}}}}`; an attack's (`mia_*`) has that twice, of
the forget set and of the holdout. Indices count the records of each data set from 0, as text. The framework's
`src/evals/metrics` writes these numbers: `memorization.py` probabilities and truth ratios, `mia/` attacks.

MUSE's logs (`configs/eval/muse_metrics`) have numbers of three sets of records of the forget set: of texts, beside a
holdout (`privleak`, the attacks), of passages to complete (`verbmem`) and of questions (`knowmem`). A table is of one
of them. `retain_knowmem_ROUGE` is of other data and says how useful a model is, and `privleak` itself is one number a
model.

The log of TOFU's own code (locuslab/tofu, `evaluate_util.py`) is `{name: {index: number}}` of one data set, which only
its name tells: `eval_log_forget.json` of the forget set. `eval_log_aggregated.json` has all of them by name.

Logs hold texts of records, too: no text is kept, and no message has one.

A log of another tool is brought to one meaning, or refused. `scores open-unlearning` joins logs by the indices of
records, never by order; a log keeps what an earlier evaluation left in it, so its metrics are held against one another,
too. open-unlearning has two truth ratios of opposite direction under one name. Which one a log has is told by the
losses that both follow from, and the table has TOFU's. Logs are decoded by what is wanted of them (msgspec), so texts
of records are passed over and never become objects.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float, Int

from jaxaudit.data.formats.parsing import parsing, refuse_repeated_keys
from jaxaudit.data.paths import read_small
from jaxaudit.errors import InputError

Set = Literal["query", "holdout", "members"]
"""The forget set, records that no model used, and records that the target used."""
LARGEST = 2**28
MOST_VALUES = 2**21
"""Values of a log, by its commas: Python takes up to 200 bytes for each."""
ATTACKS = ("loss", "zlib", "min_k", "min_k_plus_plus", "reference", "gradnorm")
"""Scores of both sets: the metric's name without `mia_`. A lower one is more likely a member's."""
LOSS, CORRECT, WRONG = "forget_Q_A_Prob", "forget_Q_A_PARA_Prob", "forget_Q_A_PERT_Prob"
TRUTH_RATIO = ("forget_truth_ratio", "forget_Truth_Ratio")
FIRST_LOSS, FIRST_LOSSES = "avg_gt_loss", ("avg_paraphrased_loss", "average_perturb_loss")
FORGET_SET = "eval_log_forget.json"
"""Names in the logs of TOFU's own code."""
COARSE = 0.05
"""How far two numbers of models in half precision may lie apart, relatively."""
OF_FORGET = ("extraction_strength", "exact_memorization")
"""Scores of the forget set, where a log has TOFU's: MUSE's are of other records than its attacks'."""
PRIVLEAK, ROUGE = "privleak", "rougeL_f1"
OF_MUSE = {
    "verbmem": {"rouge": "forget_verbmem_ROUGE", **{name: name for name in OF_FORGET}},
    "knowmem": {"rouge": "forget_knowmem_ROUGE"},
}
"""The metrics of the other two sets of MUSE's records, by the names of their scores."""
TINY = 1e-10
ALIKE = 1e-6
"""How far a truth ratio may lie from what the log's own losses give, relatively."""
_NO_NUMBER = re.compile(rb"(?<=[\s:,\[])-?(?:NaN|Infinity)(?=[\s,\]}])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,14}", re.ASCII)


class LoggedScores(NamedTuple):
    """A number of each record of a set, NaN where the log has none; `index` numbers the records, ascending."""

    index: Int[np.ndarray, " n"]
    values: Float[np.ndarray, " n"]


class EvaluationLog(NamedTuple):
    """The numbers a record of one model, by set and by name; those of a set are of the same records, in one order.

    `note` says how a file was read where that was a guess. `records` and `prompts` have for each set what is equal for
    logs of the same records, and of the same texts before their answers, where the log tells that.
    """

    path: Path
    scores: Mapping[Set, Mapping[str, LoggedScores]]
    note: str = ""
    records: Mapping[Set, str] = MappingProxyType({})
    prompts: Mapping[Set, str] = MappingProxyType({})


class _Value(msgspec.Struct):
    score: float | msgspec.UnsetType | None = msgspec.UNSET
    avg_loss: float | list[float | None] | msgspec.UnsetType | None = msgspec.UNSET
    rougeL_f1: float | msgspec.UnsetType | None = msgspec.UNSET


class _Metric(msgspec.Struct):
    value_by_index: dict[str, _Value | None]


class _Attack(msgspec.Struct):
    forget: _Metric
    holdout: _Metric


def read_log(path: Path, muse: str = PRIVLEAK) -> EvaluationLog:
    """The numbers a record in an evaluation log; of MUSE's, those of its set of records that `muse` names.

    `loss` is that of `mia_loss`, and where the log has none, that of the answers to the forget set's questions.
    `truth_ratio` is wrong / (correct + 1e-10) (TOFU), lower for records that were used; from a log with correct /
    (correct + wrong) (aggregator `prob_mean`) it is computed anew from the log's losses.

    In the logs of TOFU's own code, both are those of the forget set, too.

    Raises:
        InputError: it is too large, is no such log or a summary of one, has no number a record, keys that are no
            indices, or metrics of different records.
    """
    metrics = _metrics(path)
    if FIRST_LOSS in metrics or any(name.endswith(".json") for name in metrics):
        return _first_log(path, metrics)

    def numbers(name: str, field: str = "score") -> LoggedScores:
        return _scores(path, name, _decoded(path, f"metric {name} ", metrics[name], _Metric), field)

    if muse != PRIVLEAK:
        of_muse = OF_MUSE[muse]
        if of_muse["rouge"] not in metrics:
            raise InputError(
                f"{path}: has no metric {of_muse['rouge']}; is it MUSE_EVAL.json (`muse` is of MUSE alone)?"
            )
        passages = {
            score: numbers(name, ROUGE if score == "rouge" else "score")
            for score, name in of_muse.items()
            if name in metrics
        }
        _refuse_mixed(path, passages)
        return EvaluationLog(path, {"query": passages})
    scores_by_set: dict[Set, dict[str, LoggedScores]] = {"query": {}, "holdout": {}}
    query = scores_by_set["query"]
    for name in [attack_name for attack_name in ATTACKS if f"mia_{attack_name}" in metrics]:
        attack_scores: _Attack = _decoded(path, f"metric mia_{name} ", metrics[f"mia_{name}"], _Attack)
        query[name] = _scores(path, f"mia_{name}", attack_scores.forget, "score")
        scores_by_set["holdout"][name] = _scores(path, f"mia_{name}", attack_scores.holdout, "score")
    if LOSS in metrics and "loss" not in query:
        query["loss"] = numbers(LOSS, "avg_loss")
    of_tofu = [name for name in TRUTH_RATIO if name in metrics][:1]
    for name in of_tofu:
        losses = {
            statistic: numbers(statistic, "avg_loss")
            for statistic in (CORRECT, WRONG)
            if {CORRECT, WRONG} <= set(metrics)
        }
        query["truth_ratio"] = _truth_ratio(path, name, numbers(name), losses)
    for name in OF_FORGET:
        if name in metrics and (of_tofu or LOSS in metrics):
            query[name] = numbers(name)
    if not query:
        raise InputError(
            f"{path}: has no number a record of a metric that is known here: mia_*, {LOSS}, {TRUTH_RATIO[0]}. Is it "
            "the log of an evaluation (TOFU_EVAL.json, MUSE_EVAL.json)? MUSE's passages and questions are read where "
            "`muse` names them."
        )
    for scores in scores_by_set.values():
        _refuse_mixed(path, scores)
    return EvaluationLog(path, {name: scores for name, scores in scores_by_set.items() if scores})


def _first_log(path: Path, metrics: Mapping[str, msgspec.Raw]) -> EvaluationLog:
    """A log of TOFU's own code: loss and truth ratio of the forget set, as `read_log` has them."""
    if FIRST_LOSS not in metrics:
        if FORGET_SET not in metrics:
            raise InputError(f"{path}: has no {FORGET_SET}, the log of the forget set; evaluate with that task.")
        metrics = _decoded(path, f"{FORGET_SET} ", metrics[FORGET_SET], dict[str, msgspec.Raw])
        which = f"its part {FORGET_SET}"
    elif "forget" in path.stem.lower():
        which = "as its name says, of the forget set"
    else:
        raise InputError(
            f"{path}: is a log of TOFU's own code, in which nothing but the file's name tells the set: {FORGET_SET} is "
            "of the forget set, eval_log.json of the retain set, eval_real_*.json of others. Give the first."
        )

    def numbers(name: str) -> LoggedScores:
        cells = _decoded(path, f"{name} ", metrics[name], dict[str, float | list[float | None] | None])
        return _scores(path, name, _Metric({key: _Value(avg_loss=value) for key, value in cells.items()}), "avg_loss")

    query = {"loss": numbers(FIRST_LOSS)}
    losses = [numbers(name) for name in FIRST_LOSSES if name in metrics]
    logged_ratio = numbers("truth_ratio") if "truth_ratio" in metrics else None
    if len(losses) == 2:
        correct, wrong = losses
        named_losses = dict(zip(FIRST_LOSSES, losses, strict=True))
        _refuse_mixed(path, named_losses if logged_ratio is None else {**named_losses, "truth_ratio": logged_ratio})
        with np.errstate(over="ignore"):
            ratio = np.exp(correct.values - wrong.values)
        query["truth_ratio"] = LoggedScores(correct.index, ratio)
        # An early version has the mean of probabilities, which is no smaller than that of their logarithms.
        if logged_ratio is not None and (logged_ratio.values < ratio * (1 - COARSE)).mean() > 0.5:
            raise InputError(f"{path}: its truth_ratio is not that of its losses; evaluate again (overwrite=true).")
    elif logged_ratio is not None:
        query["truth_ratio"] = logged_ratio
    _refuse_mixed(path, query)
    return EvaluationLog(path, {"query": query}, f"{path}: read as a log of TOFU's own code, {which}")


def meeting(ours: Int[np.ndarray, " n"], other_index: Int[np.ndarray, " m"]) -> str:
    """How many indices of two lists meet, in words."""
    return (
        f"{len(ours):,} and {len(other_index):,} records, of which {len(np.intersect1d(ours, other_index)):,} meet "
        "by index"
    )


def _metrics(path: Path) -> dict[str, msgspec.Raw]:
    text = read_small(path, LARGEST)
    if text.count(b",") > MOST_VALUES:
        raise InputError(f"{path}: has more than {MOST_VALUES:,} values; is it the log of an evaluation?")
    # Python writes NaN, which is no JSON. A text that has the word is not kept.
    text = _NO_NUMBER.sub(b"null", text)
    metrics = _decoded(path, "", text, dict[str, msgspec.Raw])
    with parsing(f"{path}", "was it edited?"):
        refuse_repeated_keys(text)
    numbers = [name for name, metric in metrics.items() if not bytes(metric).startswith((b"{", b"["))]
    if numbers and len(numbers) == len(metrics):
        raise InputError(f"{path}: has averages alone, as *_SUMMARY.json: give the *_EVAL.json beside it.")
    return metrics


def _decoded(path: Path, part_name: str, text: Any, kind: Any) -> Any:
    with parsing(
        f"{path}: {part_name}is not as open-unlearning writes it", "was the evaluation stopped while it wrote?"
    ):
        return msgspec.json.decode(text, type=kind)


def _scores(path: Path, name: str, metric: _Metric, field: str) -> LoggedScores:
    """The numbers of a metric, in order of their indices; of several answers to a question, the mean."""
    keys = list(metric.value_by_index)
    wrong = sum(_INDEX.fullmatch(key) is None for key in keys)
    if wrong:
        raise InputError(f"{path}: {wrong:,} of {len(keys):,} keys of {name} are no indices (0, 1, 2); was it edited?")
    values = [None if value is None else getattr(value, field) for value in metric.value_by_index.values()]
    if all(value is msgspec.UNSET for value in values):
        raise InputError(f"{path}: metric {name} has no `{field}` of any record; is it open-unlearning's?")
    index = np.array(keys, np.int64)
    order = np.argsort(index)
    return LoggedScores(index[order], np.array([_number(value) for value in values])[order])


def _number(value: Any) -> float:
    answers = value if isinstance(value, list) else [value]
    numbers = [answer for answer in answers if isinstance(answer, float)]
    return float(np.mean(numbers)) if numbers and len(numbers) == len(answers) else float("nan")


def _truth_ratio(path: Path, name: str, logged_ratio: LoggedScores, losses: Mapping[str, LoggedScores]) -> LoggedScores:
    """The truth ratio as TOFU defines it, whichever of the two the log has."""
    if not losses:
        if (logged_ratio.values > 1).any():
            return logged_ratio
        raise InputError(
            f"{path}: {name} may be wrong / correct or correct / (correct + wrong), and the log has no {CORRECT} and "
            f"{WRONG}, which tell: evaluate again with them."
        )
    _refuse_mixed(path, {name: logged_ratio, **losses})
    with np.errstate(all="ignore"):
        correct, wrong = (np.exp(-losses[loss_name].values) for loss_name in (CORRECT, WRONG))
        ratio, share = wrong / (correct + TINY), correct / (correct + wrong + TINY)
        for form, values in ((ratio, logged_ratio.values), (share, ratio)):
            if np.allclose(logged_ratio.values, form, ALIKE, 0, equal_nan=True):
                return LoggedScores(logged_ratio.index, values)
    raise InputError(
        f"{path}: {name} does not follow from {CORRECT} and {WRONG} of the same log; were they computed at different "
        "times? Evaluate again with overwrite=true."
    )


def _refuse_mixed(path: Path, scores: Mapping[str, LoggedScores]) -> None:
    """Refuses metrics of one set that are of different records: a log keeps what an earlier evaluation left there."""
    first = next(iter(scores), "")
    for name, logged in scores.items():
        if not np.array_equal(logged.index, scores[first].index):
            raise InputError(
                f"{path}: {first} and {name} have {meeting(scores[first].index, logged.index)}; were they evaluated on "
                "different forget sets? Evaluate again with overwrite=true."
            )
