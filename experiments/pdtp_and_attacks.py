"""Which records does PDTP call risky that attacks do not find, and the other way round?

    JAXAUDIT_DATA=DATA python -m experiments.pdtp_and_attacks    # about ten minutes on two cores

PDTP (Long, Bindschaedler & Gunter 2017) asks how far a record's own output moves when the record is left out; LiRA
and its successors ask how far it moves beyond what models differ by anyhow. One pool of Location and one of Adult,
the network of `long2017_attacks`. Models of random halves: 64, each attacked by the others. PDTP of each record: mean
over the first halves that contain it, every record of such a half left out in turn, with its seed floor. A record is
at risk by PDTP above 1 nat (DTP-1), and by the attack if half or more of the models trained on it give it away at 1%
false positives.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.figures import COLORS, panels, write
from experiments.long2017_attacks import DATA, Case, classifier
from experiments.record import RESULTS, describe_run
from experiments.summary import Row
from jaxaudit import fit_many, measure_pdtp
from jaxaudit.attacks.records import LiRA, ShadowScores, Stacked
from jaxaudit.audits.attack.exposure import OFTEN, RISKY, beside_pdtp
from jaxaudit.data import candidates, load_table
from jaxaudit.ensemble import log_probs_many
from jaxaudit.metrics.attack_rates import called_at
from jaxaudit.metrics.scores import log_odds
from jaxaudit.metrics.vulnerability import vulnerability

POOL, MODELS, HALVES, SEEDS = 600, 64, 4, 3
FALSE_POSITIVES = 0.01
ATTACKS = {"lira": LiRA(), "stacked": Stacked()}


def run(data: str, seed: int) -> dict[str, Any]:
    """The records of one pool, by PDTP and by attacks."""
    table = candidates(np.random.default_rng(seed), load_table(DATA[data]), POOL)
    examples, learner = classifier(Case("NN", data), table)
    random = np.random.default_rng(seed)
    membership = np.zeros((MODELS, POOL), bool)
    for row in membership:
        row[random.permutation(POOL)[: POOL // 2]] = True

    def say(params: Any, places: np.ndarray) -> np.ndarray:
        said = log_probs_many(learner, params, examples.inputs)
        return np.clip(log_odds(said.astype(np.float64), examples.labels), -103, 103)

    keys = jax.random.split(jax.random.key(seed), MODELS)
    odds = fit_many(keys, membership, examples.inputs, examples.labels, learner, summarize=say)
    found: dict[str, Any] = {"data": data, "records": POOL, "content_hash": examples.content_hash}
    shadowed = ShadowScores(odds[:, None], membership)
    for name, attack in ATTACKS.items():
        scores = attack.scores(shadowed)
        called = called_at(scores, membership, [FALSE_POSITIVES])[0]
        seen = vulnerability(odds, membership, called, np.isfinite(scores))
        found[name] = seen.named.tolist()
    found["separation"] = seen.separation.tolist()
    total, floor, times = np.zeros(POOL), np.zeros(POOL), np.zeros(POOL)
    for half in range(HALVES):
        rows = np.flatnonzero(membership[half])
        audit = measure_pdtp(jax.random.key(seed + half), examples.take(rows), learner, seeds=SEEDS)
        total[rows] += audit.values
        floor[rows] += audit.floor.mean
        times[rows] += 1
        print(f"{data}: PDTP in half {half + 1} of {HALVES}", file=sys.stderr, flush=True)
    known, mean = times > 0, total / np.maximum(times, 1)
    found["pdtp"] = [float(value) if seen else None for value, seen in zip(mean, known, strict=True)]
    found["seed_floor"] = float((floor[known] / times[known]).mean())
    return {**found, **compared(found)}


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """Rank correlations with PDTP, and which records are at risk by which."""
    values = np.array([np.nan if each is None else each for each in found["pdtp"]])
    rows, separation = {}, np.array(found["separation"])
    for name in ATTACKS:
        beside = beside_pdtp(values, np.array(found[name]), separation)
        rows[name] = {
            "rank_correlation": beside.rank_correlation,
            "p_value": beside.p_value,
            "both": beside.both,
            "pdtp_alone": beside.pdtp_alone,
            "attack_alone": beside.attack_alone,
            "neither": beside.neither,
        }
    measured, with_separation = int((~np.isnan(values)).sum()), beside.separation_correlation
    return {"measured": measured, "compared": rows, "with_separation": with_separation}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="*", choices=list(DATA), default=list(DATA))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    started = time.time()
    cases = [run(data, arguments.seed) for data in arguments.sets]
    record = {
        "experiment": "pdtp_and_attacks",
        **describe_run(vars(arguments), time.time() - started),
        "cases": cases,
        "sentences": sentences(cases),
    }
    write(arguments.out, "pdtp_and_attacks", record, lines(record), drawing(cases))


def sentences(cases: list[dict[str, Any]]) -> list[str]:
    """What PDTP sees that attacks do not, and the reverse."""
    found = []
    for case in cases:
        for name, row in case["compared"].items():
            found.append(
                f"{case['data']}, {name}: rank correlation with PDTP {row['rank_correlation']:.2f}. Of "
                f"{case['measured']} records {row['both']} are at risk by both, {row['pdtp_alone']} by PDTP alone, "
                f"{row['attack_alone']} by the attack alone. Mean seed floor of PDTP: {case['seed_floor']:.2f} nats."
            )
    return found


def lines(record: dict[str, Any]) -> list[str]:
    """The page below the picture."""
    page = [
        "# Records at risk by PDTP, and by attacks",
        "",
        f"Pools of {POOL} records, {MODELS} models of random halves, PDTP in {HALVES} halves; {record['device']}, "
        f"{record['seconds'] / 60:.1f} minutes. At risk: PDTP above {RISKY:g} nat; named by the attack at "
        f"{FALSE_POSITIVES:.0%} false positives in half or more of the models trained on the record.",
        "",
        *(f"- {sentence}" for sentence in record["sentences"]),
        "",
        "| data | attack | rank correlation | p | both | PDTP alone | attack alone | neither |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in record["cases"]:
        for name, row in case["compared"].items():
            counts = " | ".join(str(row[each]) for each in ("both", "pdtp_alone", "attack_alone", "neither"))
            rank = f"{row['rank_correlation']:.2f} | {row['p_value']:.1g}"
            page.append(f"| {case['data']} | {name} | {rank} | {counts} |")
    return page


def drawing(cases: list[dict[str, Any]]) -> Any:
    """PDTP against the share of models that give a record away."""
    figure, axes = panels(1, len(cases), width=4.2 * len(cases), height=3.4)
    for axis, case in zip(axes, cases, strict=True):
        values = np.array([np.nan if each is None else each for each in case["pdtp"]])
        random = np.random.default_rng(1).uniform(-0.01, 0.01, len(values))
        axis.scatter(values, np.array(case["stacked"]) + random, s=8, alpha=0.5, color=COLORS[0], linewidths=0)
        axis.axvline(RISKY, color=COLORS[1], linewidth=1, linestyle="--")
        axis.axhline(OFTEN, color=COLORS[1], linewidth=1, linestyle="--")
        axis.set_xscale("symlog", linthresh=0.01)
        ticks = [0.0, 0.01, 0.1, 1.0]
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_xlim(-0.003, None)
        axis.set_xlabel("PDTP (nats)")
        axis.set_ylabel("share of its models that give it away")
        axis.set_title(case["data"])
    return figure


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""
    shown = "; ".join(
        f"{case['data']} {case['compared']['stacked']['rank_correlation']:.2f}" for case in result["cases"]
    )
    alone = "; ".join(
        f"{case['data']}: {case['compared']['stacked']['pdtp_alone']} by PDTP alone, "
        f"{case['compared']['stacked']['attack_alone']} by the attack alone"
        for case in result["cases"]
    )
    return [
        Row(
            "carlini2022",
            "PDTP beside attacks",
            "rank correlation of PDTP with how often an attack names the record",
            "none printed",
            shown,
            f"{alone}.",
            "",
        )
    ]


if __name__ == "__main__":
    main()
