"""Known members of another source than the query set: what the members test says then, and what its check refuses.

    JAXAUDIT_DATA=DATA python -m experiments.other_members      # two CPU cores: about ten minutes

A provider shared all of its records, and asks for their deletion; the model holder has other records in training, of
another source. Query set and holdout are 600 records each of one source, known members 600 of a source. Each model is
trained on the members, on 600 records of each of the two sources beside, and on none, half or all of the query set.
Where both sources are the same, this is the test as it should be used. Images have 14 x 14 pixels in gray. Networks:
dense ones of 10 and 40 epochs, a CNN of 4. The estimates are those of the test before its checks: they show what an
answer would say if the check `members like query` did not stand before it. Writes `results/other_members-DEVICE.json`
and `.md`.
"""

import argparse
import json
import time
import zlib
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
import optax

import jaxaudit as ja
from experiments.record import RESULTS, describe_run, device_slug
from experiments.summary import Row
from jaxaudit import models
from jaxaudit.audits.ks.result import TargetResult
from jaxaudit.ensemble import Execution, log_probs_many
from jaxaudit.metrics.checks import MEMBERS_LIKE_QUERY
from jaxaudit.metrics.over_models import clopper_pearson

PIXELS, SIZE, MODELS, PER_BATCH = (14, 14), 600, 8, 8
SOURCES = {"mnist": "mnist@train", "usps": "usps/usps16.npz@all", "mnist-m": "mnist_m/mnist_m_gray28_test.npz@all"}
PAIRS = (
    *(("mnist", "mnist"), ("usps", "usps"), ("mnist-m", "mnist-m")),
    *(("mnist", "usps"), ("usps", "mnist"), ("mnist", "mnist-m"), ("mnist-m", "mnist")),
)
"""The source of the query set and holdout, and that of the known members."""
SHARES = (0.0, 0.5, 1.0)
NETWORKS = {
    "mlp-10": (partial(models.MLP, hidden=(128,)), 10),
    "mlp-40": (partial(models.MLP, hidden=(128,)), 40),
    "cnn-4": (models.LiuCNN, 4),
}


def drawn_sets(query: str, members: str, seed: int) -> list[ja.Examples]:
    """Query set, holdout and members, and other training records of either source; no record twice."""
    generator = np.random.default_rng([zlib.crc32(f"{query} {members}".encode()), seed])
    count = {source: (3 if source == query else 0) + (2 if source == members else 0) for source in {query, members}}
    parts: dict[str, list[ja.Examples]] = {}
    for source in sorted(count):
        images = ja.prepare_images(ja.load(SOURCES[source]), PIXELS)
        order = generator.permutation(len(images))[: SIZE * count[source]]
        parts[source] = [images.take(rows) for rows in np.split(order, count[source])]
    return [*parts[query][:2], parts[members].pop(), parts[query][2], *parts[members][-1:]]


def judged_pair(query: str, members: str, name: str, seed: int) -> list[dict[str, Any]]:
    """The answers about all models of one network on one deal."""
    sets = drawn_sets(query, members, seed)
    make, epochs = NETWORKS[name]
    inputs = np.concatenate([np.asarray(part.inputs, np.float32) for part in sets])
    labels = np.concatenate([part.labels for part in sets]).astype(np.int32)
    used = np.repeat(SHARES, MODELS)
    generator = np.random.default_rng([seed, len(name), *name.encode()])
    rows = np.ones((len(used), len(inputs)), bool)
    rows[:, SIZE : 2 * SIZE] = False
    for row, share in zip(rows, used, strict=True):
        row[generator.permutation(SIZE)[round(share * SIZE) :]] = False
    learner = ja.network(
        make, inputs.shape[1:], len(sets[0].class_names), optimizer=optax.adam(1e-3), epochs=epochs, batch_size=32
    )
    key = jax.random.key(seed)
    log_probs = ja.fit_many(
        *(jax.random.split(key, len(rows)), rows, inputs, labels, learner),
        execution=Execution(models_per_batch=PER_BATCH),
        summarize=lambda params, _: log_probs_many(learner, params, inputs[: 3 * SIZE]),
    )
    shadows = ja.train_shadows(key, sets[0], holdout=sets[1], members=sets[2])
    with TemporaryDirectory() as folder:
        targets = [target_of(Path(folder), np.exp(np.asarray(said, np.float64)), sets) for said in log_probs]
    facts = {"query": query, "members": members, "network": name, "seed": seed}
    found = ja.judge(key, shadows, targets).targets
    return [{**facts, "used": float(share), **answer(target)} for share, target in zip(used, found, strict=True)]


def target_of(folder: Path, probabilities: np.ndarray, sets: list[ja.Examples]) -> ja.FileTarget:
    outputs = []
    for place, part in enumerate(np.split(probabilities, 3)):
        path = folder / f"{place}.npy"
        np.save(path, part / part.sum(axis=1, keepdims=True))
        outputs.append(ja.load_outputs(path, sets[0].class_names, rows=SIZE))
    return ja.FileTarget(outputs[0], on_holdout=outputs[1], on_members=outputs[2])


def answer(target: TargetResult) -> dict[str, Any]:
    """The verdict, whether the check of the members failed, and the numbers before it."""
    usage = target.usage[0]
    failed = [check.name for check in target.finding.checks if check.state == "failed"]
    return {
        "verdict": target.verdict,
        "refused": MEMBERS_LIKE_QUERY in failed,
        "without the check": usage.verdict,
        "fraction": None if np.isnan(usage.fraction) else round(float(usage.fraction), 4),
    }


def summarised(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a pair of sources and share."""
    rows = []
    for (query, members), used in product(PAIRS, SHARES):
        cell = [each for each in answers if (each["query"], each["members"], each["used"]) == (query, members, used)]
        if not cell:
            continue
        fractions = [each["fraction"] for each in cell if each["fraction"] is not None]
        low, middle, high = np.quantile(fractions, (0.1, 0.5, 0.9)) if fractions else (np.nan,) * 3
        rows.append(
            {
                "query": query,
                "members": members,
                "used": used,
                "models": len(cell),
                "estimate": [round(float(value), 2) for value in (low, middle, high)],
                "refused": sum(each["refused"] for each in cell),
                "forgotten": sum(each["verdict"] == "forgotten" for each in cell),
                "forgotten without the check": sum(each["without the check"] == "forgotten" for each in cell),
            }
        )
    return rows


def page(result: dict[str, Any]) -> str:
    def counted(row: dict[str, Any], name: str) -> str:
        interval = clopper_pearson(row[name], row["models"], 0.95)
        return f"{row[name] / row['models']:.0%} ({100 * interval.low:.0f}-{100 * interval.high:.0f})"

    names = ("forgotten", "forgotten without the check", "refused")
    lines = [
        "# Known members of another source",
        "",
        "What the members test says where the known members are not of the query set's source "
        "(`experiments/other_members.py`). The estimate is the used fraction before the checks: the median, and "
        "between which values eight of ten lie. `refused`: the check `members like query` took the verdict away, or "
        "would have. Exact 95% intervals; models of a row share one deal, and its chance, so they are too narrow.",
        "",
        f"| query set, members | used | models | estimate | {' | '.join(names)} |",
        f"|---{'|---' * (3 + len(names))}|",
    ]
    for row in result["rows"]:
        low, middle, high = row["estimate"]
        lines.append(
            f"| {row['query']}, {row['members']} | {row['used']:.0%} | {row['models']} | {middle:.2f} ({low:.2f} to "
            f"{high:.2f}) | {' | '.join(counted(row, name) for name in names)} |"
        )
    return "\n".join([*lines, ""])


def summary(result: dict[str, Any]) -> list[Row]:
    """What this experiment says of itself in the list of experiments."""
    apart = [row for row in result["rows"] if row["query"] != row["members"]]
    alike = [row for row in result["rows"] if row["query"] == row["members"]]

    def total(rows: list[dict[str, Any]], name: str, used: float) -> str:
        chosen = [row for row in rows if row["used"] == used]
        return f"{sum(row[name] for row in chosen)} of {sum(row['models'] for row in chosen)}"

    return [
        Row(
            "none",
            "Known members of another source",
            "`forgotten`, of models that used none and that used all",
            "none given",
            f"other source: {total(apart, 'forgotten', 0.0)} and {total(apart, 'forgotten', 1.0)}; same source: "
            f"{total(alike, 'forgotten', 0.0)} and {total(alike, 'forgotten', 1.0)}",
            "Members of another source make no used fraction, and a check refuses the verdict.",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    started, answers = time.time(), []
    for (query, members), name, seed in product(PAIRS, NETWORKS, range(arguments.seeds)):
        answers += judged_pair(query, members, name, seed)
        print(f"{query} {members} {name} {seed}: {time.time() - started:.0f} s", flush=True)
    result = {
        "experiment": "other_members",
        **describe_run(vars(arguments), time.time() - started),
        "rows": summarised(answers),
    }
    path = RESULTS / f"other_members-{device_slug()}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(page(result), encoding="utf-8")


if __name__ == "__main__":
    main()
