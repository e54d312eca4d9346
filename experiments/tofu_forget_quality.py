"""What is TOFU's forget quality worth, and what does the test of scores find on the same models?

    python -m experiments.tofu_forget_quality --data FOLDER        # two CPU cores: about half an hour

TOFU (Maini, Feng et al. 2024): questions on invented authors. `FOLDER` has `forget10.jsonl.gz` and
`retain90.jsonl.gz`. Reduced: 10 authors are the forget set (the query set), 40 others are retained (known members), 10
more are a holdout that no model uses; small language models of words (2 layers of 48), trained from nothing; answers
are cut after 24 words. 12 models are retrained without the forget set, 12 are trained on all, 3 each used 10%, 20% or
50% of the forget set's authors; and four full models are unlearned by gradient ascent, by gradient difference and by
fine-tuning on the retained authors, each at three strengths (steps).

Measured: forget quality's p between retrained models, where there is nothing to find; what it finds, beside one
retrained model each, and what the test of scores finds with a holdout (authors are permuted, retrained models are
baselines), a t-test and dataset inference on the same scores; and how often the interval of the share, between three
models of each kind, holds the truth. Writes `results/tofu_forget_quality-DEVICE.json`, `.md` and `.png`.
"""

import argparse
import gzip
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

from experiments.figures import panels, write
from experiments.record import RESULTS, describe_run
from experiments.scores_exact import p_of_inference, p_of_means
from experiments.summary import Row
from jaxaudit import fit_many, models
from jaxaudit.audits.ks.scores import judge_scores
from jaxaudit.data.scores.table import ScoreTable, score_table
from jaxaudit.data.sequences import sequences, word_tokenizer
from jaxaudit.data.texts import Texts
from jaxaudit.ensemble import Execution, log_probs_many
from jaxaudit.learners.language_model import LanguageModelLearner, language_model
from jaxaudit.metrics.tofu import forget_quality

AUTHOR, FORGET, RETAINED, HOLDOUT = 20, 10, 40, 10
"""Questions of an author, and authors of each set."""
MOST_WORDS = 24
EPOCHS, BATCH, WIDTH, LAYERS, RATE = 8, 16, 48, 2, 3e-3
KINDS = {"retrained": (0.0, 12), "10% used": (0.1, 3), "20% used": (0.2, 3), "50% used": (0.5, 3), "full": (1.0, 12)}
METHODS = {"gradient ascent": (-1.0, 0.0), "gradient difference": (-1.0, 1.0), "fine-tuning": (0.0, 1.0)}
"""By name, the signs of the losses of the forget set and of retained records."""
STRENGTHS = (5, 20, 60)
UNLEARNED, UNLEARNING_RATE = 4, 2e-4
PERTURBED = 3
TABLES = 60


class Sets(NamedTuple):
    """The records as tokens.

    Attributes:
        pool: retained records, then the forget set.
        holdout: records that no model uses.
        paraphrased: answers of the forget set in other words.
        perturbed: `PERTURBED` wrong answers of each record of the forget set, answer after answer.
        vocabulary: the number of tokens.
    """

    pool: np.ndarray
    holdout: np.ndarray
    paraphrased: np.ndarray
    perturbed: np.ndarray
    vocabulary: int


def read(folder: Path) -> Sets:
    """The sets of TOFU's files."""

    def lines(name: str) -> list[dict[str, Any]]:
        with gzip.open(folder / name, "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def texts(records: Sequence[dict[str, Any]], answers: Sequence[str]) -> Texts:
        cut = tuple(" " + " ".join(each.split()[:MOST_WORDS]) for each in answers)
        questions = tuple(each["question"] for each in records)
        return Texts("question", questions, cut, (b"",) * len(cut), "tofu")

    forget = lines("forget10.jsonl.gz")[: FORGET * AUTHOR]
    others = lines("retain90.jsonl.gz")[: (RETAINED + HOLDOUT) * AUTHOR]
    retained, holdout = others[: RETAINED * AUTHOR], others[RETAINED * AUTHOR :]
    sets = [
        texts(retained + forget, [each["answer"] for each in retained + forget]),
        texts(holdout, [each["answer"] for each in holdout]),
        texts(forget, [each["paraphrased_answer"] for each in forget]),
        *(texts(forget, [each["perturbed_answer"][place] for each in forget]) for place in range(PERTURBED)),
    ]
    tokenizer = word_tokenizer(sets, 3_500)
    pool, held, paraphrased, *perturbed = (each.inputs for each in sequences(sets, tokenizer))
    return Sets(pool, held, paraphrased, np.concatenate(perturbed), tokenizer.vocabulary)


class Said(NamedTuple):
    """What models say, a row a model.

    Attributes:
        loss: of the forget set, then of the holdout, in nats a token.
        members: the loss of the retained records.
        truth_ratio: of the forget set.
    """

    loss: np.ndarray
    members: np.ndarray
    truth_ratio: np.ndarray

    def take(self, rows: Any) -> "Said":
        return Said(*(each[rows] for each in self))


def asked(learner: LanguageModelLearner, params: Any, sets: Sets) -> Said:
    """The losses and truth ratios of these models."""

    def loss(inputs: np.ndarray) -> np.ndarray:
        return -log_probs_many(learner, params, inputs)[..., 0]

    retained = RETAINED * AUTHOR
    wrong = loss(sets.perturbed).reshape(-1, PERTURBED, FORGET * AUTHOR).mean(axis=1)
    right = loss(sets.paraphrased)
    pool = loss(sets.pool)
    both = np.concatenate([pool[:, retained:], loss(sets.holdout)], axis=1)
    return Said(both, pool[:, :retained], np.exp(-wrong) / (np.exp(-right) + 1e-10))


def trained(learner: LanguageModelLearner, sets: Sets, seed: int) -> tuple[dict[str, Said], Any]:
    """What the models of every kind say, and the parameters of some full models."""
    retained, count = RETAINED * AUTHOR, len(sets.pool)
    random, rows, names = np.random.default_rng(seed), [], []
    for kind, (share, models_of) in KINDS.items():
        for _ in range(models_of):
            chosen = random.choice(FORGET, round(share * FORGET), replace=False)
            own = np.r_[np.ones(retained, bool), np.isin(np.arange(count - retained) // AUTHOR, chosen)]
            rows.append(own)
            names.append(kind)
    keys = jax.random.split(jax.random.key(seed), len(rows))
    execution = Execution(models_per_batch=3)

    def said(params: Any, _: Any) -> tuple[Any, ...]:
        return (*asked(learner, params, sets), params)

    *numbers, params = fit_many(
        keys, np.stack(rows), sets.pool, np.zeros(count, np.int32), learner, execution=execution, summarize=said
    )
    every = Said(*numbers)
    full = [place for place, name in enumerate(names) if name == "full"][:UNLEARNED]
    start = jax.tree.map(lambda leaf: jnp.asarray(leaf)[np.array(full)], params)
    return {kind: every.take(np.array([name == kind for name in names])) for kind in KINDS}, start


def unlearned(learner: LanguageModelLearner, start: Any, sets: Sets, seed: int) -> dict[str, Said]:
    """What full models say after each method and strength; all models take the same minibatches."""
    retained, random = RETAINED * AUTHOR, np.random.default_rng(seed)
    rule = optax.adamw(UNLEARNING_RATE)

    def loss(params: Any, inputs: Any) -> Any:
        return -jnp.mean(learner.log_probs(params, inputs))

    def objective(inner: Any, params: Any, forget: Any, keep: Any, signs: tuple[float, float]) -> Any:
        held = params._replace(params=inner)
        return signs[0] * loss(held, forget) + signs[1] * loss(held, keep)

    @partial(jax.jit, static_argnames="signs")
    def step(params: Any, state: Any, forget: Any, keep: Any, signs: tuple[float, float]) -> Any:
        def one(own: Any, kept: Any) -> Any:
            updates, after = rule.update(jax.grad(objective)(own.params, own, forget, keep, signs), kept, own.params)
            return own._replace(params=optax.apply_updates(own.params, updates)), after

        return jax.vmap(one)(params, state)

    found = {}
    for method, signs in METHODS.items():
        params, state = start, jax.vmap(rule.init)(start.params)
        for number in range(1, max(STRENGTHS) + 1):
            forget = sets.pool[retained + random.choice(FORGET * AUTHOR, BATCH, replace=False)]
            keep = sets.pool[random.choice(retained, BATCH, replace=False)]
            params, state = step(params, state, jnp.asarray(forget), jnp.asarray(keep), signs)
            if number in STRENGTHS:
                found[f"{method}, {number} steps"] = asked(learner, params, sets)
    return found


def table_of(target: Said, row: int, known: Mapping[str, tuple[Said, Sequence[int]]], members: bool) -> ScoreTable:
    """The table of one target: losses of the forget set and the holdout, of authors dealt whole."""
    both = target.loss.shape[1]
    sets = np.repeat(["query", "holdout"], both // 2)
    groups = np.arange(both) // AUTHOR
    columns: dict[str, Any] = {"target.loss": target.loss[row]}
    for role, (models_of, rows) in known.items():
        columns |= {f"{role}.{place}.loss": models_of.loss[place] for place in rows}
    if members:
        count = target.members.shape[1]
        sets = np.concatenate([sets, np.repeat("members", count)])
        groups = np.concatenate([groups, both // AUTHOR + np.arange(count) // AUTHOR])
        columns = {"target.loss": np.concatenate([target.loss[row], target.members[row]])} | {
            name: np.concatenate([each, known[name.split(".")[0]][0].members[int(name.split(".")[1])]])
            for name, each in columns.items()
            if name != "target.loss"
        }
    return score_table({"set": sets, "group": groups, **columns})


def compared(said: dict[str, Said], kind: str, seed: int) -> dict[str, Any]:
    """How often each test finds something in models of one kind, beside retrained models of other seeds."""
    random, retrained, found = np.random.default_rng(seed), said["retrained"], said[kind]
    size = FORGET * AUTHOR
    p_values: dict[str, list[float]] = {name: [] for name in TESTS}
    for number in range(TABLES):
        row = int(random.integers(len(found.loss)))
        other = [place for place in range(len(retrained.loss)) if kind != "retrained" or place != row]
        first, *more = random.choice(other, 4, replace=False)
        key = jax.random.fold_in(jax.random.key(seed), number)

        def p_of(known: Sequence[int], row: int = row, key: Any = key) -> float:
            table = table_of(found, row, {"baseline": (retrained, known)}, False)
            return judge_scores(key, table).targets[0].usage[0].p_never

        losses = found.loss[row]
        p_values[TESTS[0]].append(forget_quality(found.truth_ratio[row], retrained.truth_ratio[first]))
        p_values[TESTS[1]].append(p_of([int(first)]))
        p_values[TESTS[2]].append(p_of([int(first), *map(int, more)]))
        p_values[TESTS[3]].append(p_of_means(losses[:size], losses[size:], equal_var=False))
        p_values[TESTS[4]].append(p_of_inference(random, np.stack([losses, losses**2], axis=1), size))
    return {
        "models": kind,
        "tables": TABLES,
        **{
            name: {"found": float((np.array(each) <= 0.05).mean()), "median p": float(np.median(each))}
            for name, each in p_values.items()
        },
    }


TESTS: tuple[str, ...] = (
    "forget quality",
    "test of scores, one baseline",
    "test of scores, four baselines",
    "t-test of losses",
    "dataset inference",
)


def coverage(said: dict[str, Said], seed: int) -> list[dict[str, Any]]:
    """How often the interval of the share holds the truth: between three models of each kind, and by members."""
    random, rows = np.random.default_rng(seed), []
    for kind, (share, _) in KINDS.items():
        counts = {"between models": [0, 0, 0], "by members": [0, 0, 0]}
        for number in range(TABLES):
            row = int(random.integers(len(said[kind].loss)))

            def three(other: str, kind: str = kind, row: int = row) -> list[int]:
                own = row if other == kind else -1
                return [int(each) for each in random.permutation(len(said[other].loss)) if each != own][:3]

            known = {"unused": (said["retrained"], three("retrained"))}
            tables = {
                "between models": table_of(said[kind], row, {**known, "used": (said["full"], three("full"))}, False),
                "by members": table_of(said[kind], row, known, True),
            }
            for name, table in tables.items():
                target = judge_scores(jax.random.fold_in(jax.random.key(seed), number), table).targets[0]
                usage = target.usage[0]
                low, high = usage.fraction_low or 0.0, 1.0 if usage.fraction_high is None else usage.fraction_high
                counts[name][0] += low - 1e-9 <= share <= high + 1e-9
                counts[name][1] += usage.upper >= share - 1e-9
                counts[name][2] += target.verdict == "forgotten"
        rows += [
            {
                "models": kind,
                "share": share,
                "how": name,
                "tables": TABLES,
                "interval holds": held / TABLES,
                "limit at or above": above / TABLES,
                "forgotten": forgotten / TABLES,
            }
            for name, (held, above, forgotten) in counts.items()
        ]
    return rows


def kept(cache: Path | None) -> dict[str, Said]:
    """What models said that were trained before; empty if none were."""
    if cache is None or not cache.exists():
        return {}
    with np.load(cache, allow_pickle=False) as found:
        kinds = dict.fromkeys(name.partition("|")[0] for name in found)
        return {kind: Said(*(found[f"{kind}|{name}"] for name in Said._fields)) for kind in kinds}


def between(said: Said) -> dict[str, Any]:
    """Forget quality between retrained models."""
    p_values = np.array([forget_quality(*pair) for pair in combinations(said.truth_ratio, 2)])
    return {
        "pairs": len(p_values),
        "below 5%": float((p_values < 0.05).mean()),
        "median p": float(np.median(p_values)),
        "p of uniform": float(stats.kstest(p_values, "uniform").pvalue),
        "p_values": p_values.round(4).tolist(),
    }


def page(result: dict[str, Any]) -> list[str]:
    lines = ["# TOFU's forget quality, and the test of scores", "", " ".join((__doc__ or "").split("\n\n")[2].split())]
    lines += ["", " ".join((__doc__ or "").split("\n\n")[3].split()), ""]
    each = result["between"]
    lines.append(
        f"Between {KINDS['retrained'][1]} retrained models ({each['pairs']} pairs) forget quality is below 5% for "
        f"{each['below 5%']:.0%} of pairs, where 5% is due; its median is {each['median p']:.2f}, where .5 is due."
    )
    lines += ["", "## Found at 5%, and median p", "", f"| models | {' | '.join(TESTS)} |", "|---" * 6 + "|"]
    for row in result["compared"]:
        cells = " | ".join(f"{row[name]['found']:.0%} ({row[name]['median p']:.2g})" for name in TESTS)
        lines.append(f"| {row['models']} | {cells} |")
    query, holdout = result["loss"]["retrained"]
    lines += [
        "",
        "For retrained models, what is found is false. Of unlearned models the truth is not a share. All rows are of "
        f"one deal, in which the forget set is harder than the holdout (loss of retrained models {query:.2f} and "
        f"{holdout:.2f} nats a token). So the two tests that know no baseline judge the deal and not the model: the "
        "t-test misses use, and dataset inference, which finds a difference in either direction, calls retrained "
        "models used. Ten authors of 20 questions against ten are few: a permutation of authors finds use of half, and "
        "not of less.",
        "",
    ]
    lines += ["## The share of the effect", ""]
    lines += ["| models | share | how | interval holds it | limit at or above | forgotten |", "|---" * 6 + "|"]
    for row in result["coverage"]:
        lines.append(
            f"| {row['models']} | {row['share']:.0%} | {row['how']} | {row['interval holds']:.0%} | "
            f"{row['limit at or above']:.0%} | {row['forgotten']:.0%} |"
        )
    lines += ["", "Rows share one deal and few models, so they are not independent: coverage is not measured by them."]
    return lines


def summary(result: dict[str, Any]) -> list[Row]:
    each = result["between"]
    found = {row["models"]: row for row in result["compared"]}
    shares = ", ".join(
        f"{kind}: {found[kind][TESTS[0]]['found']:.0%} and {found[kind][TESTS[2]]['found']:.0%}"
        for kind in ("10% used", "20% used", "50% used", "full")
    )
    return [
        Row(
            "tofu2024",
            "Forget quality",
            "pairs of retrained models below 5%; found by it, and by the test of scores with four baselines",
            "read as a p-value at 5%",
            f"{each['below 5%']:.0%} of {each['pairs']}; {shares}",
            "Small models of words, 10 authors, one deal: no claim about large ones, and none about level over deals.",
            "--data FOLDER",
        )
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, help="a .npz that keeps what the models say")
    parser.add_argument("--seed", type=int, default=7)
    given, started = parser.parse_args(arguments), time.time()
    sets = read(given.data)
    factory = partial(models.GPT, depth=LAYERS, width=WIDTH)
    steps = EPOCHS * (len(sets.pool) // BATCH)
    rule = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, RATE, steps // 10, steps), weight_decay=0.01)
    learner = language_model(
        factory, sets.pool.shape[1], sets.vocabulary, optimizer=rule, epochs=EPOCHS, batch_size=BATCH
    )
    said = kept(given.cache)
    if not said:
        said, start = trained(learner, sets, given.seed)
        said |= unlearned(learner, start, sets, given.seed)
        if given.cache is not None:
            arrays = {f"{kind}|{name}": part for kind, each in said.items() for name, part in each._asdict().items()}
            np.savez(given.cache, **arrays)
    result: dict[str, Any] = {
        "experiment": "tofu_forget_quality",
        "loss": {kind: [float(part.mean()) for part in np.split(each.loss, 2, axis=1)] for kind, each in said.items()},
        "between": between(said["retrained"]),
        "compared": [compared(said, kind, given.seed) for kind in said],
        "coverage": coverage(said, given.seed),
    }
    result |= describe_run(vars(given), time.time() - started)
    figure, (left, right) = panels(1, 2, width=9.5, height=3.6)
    p_values = np.sort(result["between"]["p_values"])
    left.plot(p_values, np.arange(1, len(p_values) + 1) / len(p_values), drawstyle="steps-post")
    left.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    left.set(title="Forget quality between retrained models", xlabel="p", ylabel="share of pairs")
    kinds = [row["models"] for row in result["compared"]]
    for name in TESTS:
        right.plot(range(len(kinds)), [row[name]["found"] for row in result["compared"]], marker="o", ms=3, label=name)
    right.set_xticks(range(len(kinds)), kinds, rotation=60, ha="right", fontsize=6)
    right.set(title="Found at 5%", ylim=(-0.02, 1.02))
    right.legend(fontsize=6)
    write(RESULTS, "tofu_forget_quality", result, page(result), figure)


if __name__ == "__main__":
    main()
