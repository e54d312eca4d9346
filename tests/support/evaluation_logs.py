"""Evaluation logs in the shape that open-unlearning writes, and damaged ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SECRET = "secret735173517"
"""Stands wherever a log has text of records."""
ATTACKS = ("loss", "zlib", "min_k", "min_k_plus_plus", "gradnorm")


def tofu_log(
    seed: int, used: float = 0.0, records: int = 40, attacks: tuple[str, ...] = ("min_k",), form: str = "tofu"
) -> dict[str, Any]:
    """The log of a model that used the forget set to this degree; records are alike between seeds.

    Args:
        seed: of the model.
        used: how much lower its loss on the forget set is.
        records: of the forget set, and of the holdout.
        attacks: the `mia_*` metrics; open-unlearning's default has `min_k`, for privleak.
        form: of the truth ratio: `tofu`, or `prob_mean`.
    """
    common, own = np.random.default_rng(7), np.random.default_rng(seed)
    difficulty = common.normal(2, 0.5, (2, records))
    loss, holdout = np.abs(difficulty + own.normal(0, 0.1, (2, records)) - [[used], [0]])
    correct = loss + 0.3
    wrong = common.normal(3, 0.3, (records, 5)) + own.normal(0, 0.1, (records, 5))
    right, others = np.exp(-correct), np.exp(-wrong.mean(axis=1))
    ratio = others / (right + 1e-10) if form == "tofu" else right / (right + others + 1e-10)
    aggregate = np.minimum(ratio, 1 / (ratio + 1e-10)).mean() if form == "tofu" else ratio.mean()
    scores = {"forget": loss, "holdout": holdout}
    texts = dict.fromkeys(("input", "ground_truth", "generation"), [SECRET] * records)
    return {
        "extraction_strength": _metric({"score": np.round(np.exp(-loss), 2)}),
        "forget_Q_A_PARA_Prob": _metric({"prob": right, "avg_loss": correct}),
        "forget_Q_A_PERT_Prob": _metric({"prob": np.exp(-wrong), "avg_loss": wrong}),
        "forget_Q_A_Prob": _metric({"prob": np.exp(-loss), "avg_loss": loss}),
        "forget_Q_A_ROUGE": _metric({"rougeL_recall": right, **texts}),
        "forget_quality": {"agg_value": None},
        "forget_truth_ratio": {**_metric({"score": ratio}), "agg_value": float(aggregate)},
        **{
            f"mia_{name}": {
                **{part: _metric({"score": each * (1 + place)}) for part, each in scores.items()},
                "auc": 0.5,
                "agg_value": 0.5,
            }
            for place, name in enumerate(attacks)
        },
        "model_utility": {"agg_value": 0.6},
        "privleak": {"agg_value": -1.0},
        "retain_Truth_Ratio": _metric({"score": ratio}),
    }


def muse_log(seed: int, records: int = 30, used: float = 0.0) -> dict[str, Any]:
    """The log of MUSE's evaluation: passages, questions and the attack are of different records.

    Names and shapes are those of open-unlearning's `configs/eval/muse_metrics` and `src/evals/metrics`; numbers are
    made up.
    """
    of_tofu = tofu_log(seed, records=records)
    common, own = np.random.default_rng(8), np.random.default_rng(seed)

    def rouge(count: int, more: float = used) -> dict[str, Any]:
        f1 = np.clip(common.uniform(0.2, 0.6, count) + own.normal(0, 0.05, count) + more, 0, 1)
        texts = dict.fromkeys(("input", "ground_truth", "generation"), [SECRET] * count)
        return _metric({"rouge1_recall": f1 * 0.9, "rougeL_f1": f1, "rougeL_recall": f1 * 0.8, **texts})

    return {
        "extraction_strength": _metric({"score": np.round(own.uniform(0, 0.2, records // 3), 3)}),
        "forget_knowmem_ROUGE": rouge(records // 2),
        "forget_verbmem_ROUGE": rouge(records // 3),
        **{name: of_tofu[name] for name in ("mia_min_k", "privleak")},
        "retain_knowmem_ROUGE": rouge(records // 2, 0.3),
    }


def write_log(folder: Path, log: Mapping[str, Any], name: str = "TOFU_EVAL.json") -> Path:
    """Writes a log as open-unlearning does: Python's JSON, which has NaN."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(log, indent=4))
    return folder / name


def summary_of(log: Mapping[str, Any]) -> dict[str, float]:
    """The averages, as in `*_SUMMARY.json`."""
    return {name: each["agg_value"] for name, each in log.items() if each["agg_value"] is not None}


def _metric(fields: Mapping[str, Any]) -> dict[str, Any]:
    columns = {name: np.asarray(values).tolist() for name, values in fields.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {"agg_value": 0.5, "value_by_index": {str(number): row for number, row in enumerate(rows)}}
