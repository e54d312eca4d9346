"""How often verdicts on language models are wrong, by tables of scores and by what is given beside the query set.

    python -m experiments.score_rates --cache FOLDER --data TOFU --train   # trains; call it again where it was stopped
    python -m experiments.score_rates --cache FOLDER --data TOFU --judge   # answers; call it again where it was stopped
    python -m experiments.score_rates --cache FOLDER                       # the tables

TOFU is the folder of `forget10.jsonl.gz` and `retain90.jsonl.gz` (Maini, Feng et al. 2024). In each world
(`score_rates_worlds`) small language models are trained side by side. Each is judged in the deals in which it used
none, a quarter, half or all of the query set, by `jaxaudit.audits.ks.scores.judge_scores`, which is what `jaxaudit ks
--scores` asks. FOLDER keeps the scores of all models, and the answers by world and deal. On one CPU core: 20 minutes to
train, 30 to answer. Writes `results/score_rates-DEVICE.json` and `.md`.
"""

import argparse
import json
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.figures import write
from experiments.rates import (
    Answer,
    Condition,
    Layout,
    Measure,
    Rate,
    brief,
    covers,
    interval,
    of,
    percent,
    rate,
    rates,
    says,
    shown,
    table,
    used,
)
from experiments.record import RESULTS, Row, describe_run
from experiments.score_rates_worlds import (
    DEALS,
    GROUPS,
    PART,
    PER_GROUP,
    SCORES,
    SHARES,
    USUAL,
    WORLDS,
    Corpus,
    Deal,
    Planned,
    World,
    draw_corpus,
    planned,
    train,
)
from experiments.scores_exact import p_of_inference, p_of_means
from jaxaudit.audits.ks.scores import ScoresTest, judge_scores
from jaxaudit.data.scores.table import score_table
from jaxaudit.metrics.forgetting_quality import forget_quality, mia_auc, privleak
from jaxaudit.metrics.usage import STATED_FRACTION

# The tables of scores, and the answers about each target by each way of giving data.

SIZES = ((4, PER_GROUP), (8, 5), (8, PER_GROUP), (PART, PER_GROUP))
"""Groups of the query set, of which the holdout has as many, and records of a group."""
COUNTS = (1, 3, 8)
"""Models of known truth of each kind."""
COPIES = 3
"""Targets of a deal that used all, or none, of its query set."""
AGAIN, AGAIN_GROUPS = 8, 8
"""Further deals of a model that never used the query set, and their groups."""
NUMBERS = ("loss", "min_k", "min_k_plus_plus", "zlib")
TRUTH_RATIO, MIN_K = SCORES.index("truth_ratio"), SCORES.index("min_k")


class Target(NamedTuple):
    """A model in question in one deal.

    Attributes:
        scores: `[records, SCORES]`.
        used: the share of the query set that it used.
        own: the number of the model: no model of known truth.
    """

    scores: np.ndarray
    used: float
    own: int


class Trained(NamedTuple):
    """What was trained in a world, with the number of tokens of each record."""

    plan: Sequence[Planned]
    scores: np.ndarray
    tokens: np.ndarray


def read_trained(path: Path, world: World, corpus: Corpus) -> Trained:
    return Trained(planned(world), np.load(path).astype(np.float64), tokens_in(corpus))


def tokens_in(corpus: Corpus) -> np.ndarray:
    return (corpus.inputs >= 0).sum(axis=1).astype(np.float64)


def targets_of(trained: Trained, place: int) -> list[Target]:
    """The targets of a deal."""
    shares = [model.used(DEALS[place]) for model in trained.plan]
    return [
        Target(trained.scores[number], share, number)
        for share in (0.0, *sorted(SHARES.values()), 1.0)
        for number in [number for number, part in enumerate(shares) if part == share][:COPIES]
    ]


def chosen_groups(generator: np.random.Generator, plan: Planned, deal: Deal, groups: int) -> list[np.ndarray]:
    """As many groups of query set and holdout, and the members; of the query set the model used the same share."""
    parts = [np.arange(GROUPS).reshape(-1, PART)[part] for part in (deal.query, deal.holdout, deal.members)]
    of_query = parts[0]
    if plan.deal == deal:
        used = round(plan.share * groups)
        sides = of_query[plan.groups[of_query]], of_query[~plan.groups[of_query]]
        query = np.concatenate(
            [
                generator.choice(side, count, replace=False)
                for side, count in zip(sides, (used, groups - used), strict=True)
            ]
        )
    else:
        query = generator.choice(of_query, groups, replace=False)
    return [query, generator.choice(parts[1], groups, replace=False), parts[2]]


def rows_of(groups: np.ndarray, records: int) -> np.ndarray:
    return (groups[:, None] * PER_GROUP + np.arange(records)).ravel()


def columns_of(
    tokens: np.ndarray, parts: Sequence[np.ndarray], names: Sequence[str]
) -> tuple[dict[str, Any], np.ndarray]:
    """The columns that no model made, and the rows of the records."""
    rows = np.concatenate(parts)
    sets = np.repeat(names, [len(part) for part in parts])
    return {"set": sets, "group": rows // PER_GROUP, "covariate.tokens": tokens[rows]}, rows


def with_scores(columns: dict[str, Any], role: str, scores: np.ndarray) -> dict[str, Any]:
    return columns | {f"{role}.{name}": scores[:, SCORES.index(name)] for name in NUMBERS}


def judged_deal(name: str, trained: Trained, place: int) -> Iterator[Answer]:
    """The answers about all targets of one deal of a world, by size and way."""
    deal = DEALS[place]
    generator = np.random.default_rng([zlib.crc32(name.encode()), place])
    known = {
        role: [number for number, model in enumerate(trained.plan) if model.used(deal) == share]
        for role, share in (("unused", 0.0), ("used", 1.0))
    }
    for target in targets_of(trained, place):
        own = trained.plan[target.own]
        others = {
            role: generator.permutation([number for number in numbers if number != target.own])
            for role, numbers in known.items()
        }
        for groups, records in SIZES:
            parts = [rows_of(part, records) for part in chosen_groups(generator, own, deal, groups)]
            facts = {"deal": place, "model": target.own, "used": target.used, "groups": groups, "records": records}
            for way, answer in _answers(generator, trained, target, others, parts):
                yield {**facts, "way": way, **answer}
        if target.used == 0:
            yield from _again(generator, trained, target, others["unused"][: max(COUNTS)], place)


def _answers(
    generator: np.random.Generator,
    trained: Trained,
    target: Target,
    others: Mapping[str, np.ndarray],
    parts: Sequence[np.ndarray],
) -> Iterator[tuple[str, Answer]]:
    key = jax.random.key(int(generator.integers(2**31)))
    both, rows = columns_of(trained.tokens, parts[:2], ["query", "holdout"])
    three, all_rows = columns_of(trained.tokens, parts, ["query", "holdout", "members"])
    tables = {
        "holdout": with_scores(both, "target", target.scores[rows]),
        "members": with_scores(three, "target", target.scores[all_rows]),
    }
    size = len(parts[0])
    for count in COUNTS:
        if count > min(map(len, others.values())):
            continue
        table = tables["holdout"]
        for role, numbers in others.items():
            for number in numbers[:count]:
                table = with_scores(table, f"{role}.{number}", trained.scores[number][rows])
        tables[f"known {count}"] = table
    retrained = trained.scores[others["unused"][0]][rows]
    log = with_scores(tables["holdout"], "unused", retrained)
    tables["log, groups"] = log
    tables["log"] = {name: numbers for name, numbers in log.items() if name not in ("group", "covariate.tokens")}
    for way, table in tables.items():
        yield way, usage_of(key, table)
    yield "others", _field(generator, target.scores[rows], retrained, size)


def usage_of(key: Any, columns: dict[str, Any]) -> Answer:
    """What `jaxaudit ks --scores --same-recipe` says of a table."""
    target = judge_scores(key, score_table(columns), test=ScoresTest(same_recipe=True)).targets[0]
    usage = target.usage[0]
    values = {name: getattr(usage, name) for name in ("p_never", "fraction", "upper")}
    plain = {
        name: None if value is None or np.isnan(value) else round(float(value), 5) for name, value in values.items()
    }
    return {"verdict": target.verdict, **plain}


def _field(generator: np.random.Generator, scores: np.ndarray, retrained: np.ndarray, size: int) -> Answer:
    """The field's other numbers of the same records."""
    areas = [mia_auc(model[:size, MIN_K], model[size:, MIN_K]) for model in (scores, retrained)]
    numbers = scores[:, [SCORES.index(name) for name in NUMBERS]]
    found = {
        "forget_quality": forget_quality(scores[:size, TRUTH_RATIO], retrained[:size, TRUTH_RATIO]),
        "privleak": privleak(*areas),
        "t_test": p_of_means(numbers[:size, 0], numbers[size:, 0], equal_var=False),
        "dataset_inference": p_of_inference(generator, numbers, size),
    }
    return {name: round(value, 6) for name, value in found.items()}


def _again(
    generator: np.random.Generator, trained: Trained, target: Target, retrained: np.ndarray, place: int
) -> Iterator[Answer]:
    """The p-values of further deals of the groups that a model did not use, from both parts, also beside others."""
    deal = DEALS[place]
    free = np.arange(GROUPS).reshape(-1, PART)[[deal.query, deal.holdout]].ravel()
    for _ in range(AGAIN):
        groups = generator.permutation(free)[: 2 * AGAIN_GROUPS].reshape(2, -1)
        both, rows = columns_of(trained.tokens, [rows_of(part, PER_GROUP) for part in groups], ["query", "holdout"])
        table = with_scores(both, "target", target.scores[rows])
        key = jax.random.key(int(generator.integers(2**31)))
        facts = {"deal": place, "model": target.own}
        yield {**facts, "way": "holdout", "again": usage_of(key, table)["p_never"]}
        for number in retrained:
            table = with_scores(table, f"unused.{number}", trained.scores[number][rows])
        yield {**facts, "way": "retrained", "again": usage_of(key, table)["p_never"]}


def judge(name: str, folder: Path, data: Path | None) -> None:
    """Adds the answers about the deals of a world, where they were not judged yet."""
    paths = {place: folder / f"answers-{name}-{place}.json" for place in range(len(DEALS))}
    if all(path.exists() for path in paths.values()) or not (folder / f"{name}.npy").exists():
        return
    trained = read_trained(folder / f"{name}.npy", WORLDS[name], draw_corpus(WORLDS[name], data))
    for place, path in paths.items():
        if not path.exists():
            started = time.time()
            path.write_text(json.dumps(list(judged_deal(name, trained, place))))
            print(f"{name}, deal {place}: {time.time() - started:.0f} s", flush=True)


def answers_of(folder: Path, files: str, names: Sequence[str]) -> list[Answer]:
    """The answers in files called so, with the names of their worlds."""
    return [
        {**answer, "world": name}
        for name in names
        for path in sorted(folder.glob(files.format(name)))
        for answer in json.loads(path.read_text())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="the folder of TOFU's files")
    parser.add_argument("--train", action="store_true", help="train, rather than draw up the tables")
    parser.add_argument("--judge", action="store_true", help="answer, rather than draw up the tables")
    parser.add_argument("--worlds", nargs="*", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    started = time.time()
    for name in arguments.worlds if arguments.train else ():
        train(name, WORLDS[name], draw_corpus(WORLDS[name], arguments.data), arguments.cache)
        print(f"{name}: {time.time() - started:.0f} s", flush=True)
    for name in arguments.worlds if arguments.judge else ():
        judge(name, arguments.cache, arguments.data)
    if arguments.train or arguments.judge:
        return
    answers = answers_of(arguments.cache, "answers-{}-[0-9].json", arguments.worlds)
    found = summarise(answers)
    record = {"experiment": "score_rates", **describe_run({"stated": STATED_FRACTION}), "rates": found}
    print(write(arguments.out, "score_rates", record, lines(found)).read_text())


# The rates, their page and their picture.

WAYS = {
    "holdout": "a holdout",
    "members": "a holdout and known members",
    "known 1": "a holdout, 1 model of known truth of each kind",
    "known 3": "3 of each kind",
    "known 8": "8 of each kind",
    "log, groups": "a log of open-unlearning and a retrained model's, groups stated",
    "log": "the same log, groups not stated",
}
MEASURES = {
    "false alarms": Measure("never used, called `not forgotten`: wrong", used(0.0), says("not forgotten")),
    "wrong forgotten": Measure(
        f"more than {STATED_FRACTION:.0%} used, called `forgotten`: wrong",
        lambda answer: answer["used"] > STATED_FRACTION,
        says("forgotten"),
    ),
    "at stated": Measure(
        f"exactly {STATED_FRACTION:.0%} used, called `forgotten`: allowed up to 5%",
        used(STATED_FRACTION),
        says("forgotten"),
    ),
    "covered": Measure(
        "the 95% limit, 100% if none is given, is at or above the truth", lambda answer: answer["used"] > 0, covers
    ),
    "given covered": Measure(
        "of the limits below 100% alone: at or above the truth",
        lambda answer: answer["used"] > 0 and answer["upper"] < 1,
        covers,
    ),
    "forgotten": Measure("never used, called `forgotten`: right", used(0.0), says("forgotten")),
    "found": Measure("all used, called `not forgotten`: right", used(1.0), says("not forgotten")),
    "half found": Measure("half used, called `not forgotten`: right", used(0.5), says("not forgotten")),
    "quarter found": Measure("a quarter used, called `not forgotten`: right", used(0.25), says("not forgotten")),
}
WITHOUT_LIMIT = ("holdout", "log, groups", "log")
OF_LIMITS = ("wrong forgotten", "at stated", "covered", "given covered", "forgotten")
LAYOUT = Layout(WAYS, MEASURES, WITHOUT_LIMIT, OF_LIMITS)
SHOWN = {0.0: "never used", 0.25: "a quarter used", 0.5: "half used", 1.0: "all used"}
FIELD: dict[str, tuple[str, Condition]] = {
    "forget_quality": ("forget quality at most 5%", lambda answer: answer["forget_quality"] <= 0.05),
    "privleak": ("privleak below -5%", lambda answer: answer["privleak"] < -5),
    "t_test": ("t-test of the losses, 5%", lambda answer: answer["t_test"] <= 0.05),
    "dataset_inference": ("LLM dataset inference, 5%", lambda answer: answer["dataset_inference"] <= 0.05),
}
"""How the field's numbers are read as "not forgotten"; MUSE takes a privleak within 5% for none."""
PROTOCOL = (
    "A world is 60 authors of TOFU, or 60 invented patients of 10 notes each, in three parts of 20, and 78 small "
    "language models of words (a weak recipe: 36), trained from nothing: of one part, of two, or of one and a half or "
    "a quarter of another.",
    "A deal takes a part as known members, one as the query set, one as the holdout. A target is a model in a deal, "
    "asked by 4, 8 or 20 groups of the query set and as many of the holdout, whole groups; it used none, a quarter, "
    "half or all of these query groups. Models of known truth are other models of the same deal.",
    "Scores are loss, Min-K%, Min-K%++ and zlib ratio, with the number of tokens as a covariate. All ways are asked "
    "about the same records of the same target.",
    "A world is one draw of groups, in three parts: targets of a model, and those of a part, share their chance, so "
    "the intervals are too narrow. What the level is, the further deals show.",
)


def by_way(answers: Sequence[Answer]) -> dict[str, dict[str, Rate]]:
    """Every measure of every way."""
    return {way: rates(of(answers, way=way), MEASURES) for way in WAYS}


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Every rate that is reported. An answer has its world's name."""
    judged = [answer for answer in answers if answer["way"] in WAYS and "again" not in answer]
    worlds = [name for name in WORLDS if any(answer["world"] == name for answer in judged)]
    final = [name for name in worlds if WORLDS[name].final]
    sizes = sorted({(answer["groups"], answer["records"]) for answer in judged})
    return {
        "worlds": worlds,
        "final": final,
        "models": len({(answer["world"], answer["model"]) for answer in judged}),
        "targets": len({(answer["world"], answer["deal"], answer["model"]) for answer in judged}),
        "tables": len(of(judged, way="holdout")),
        "looked at once": by_way([answer for answer in judged if answer["world"] in final]),
        "all worlds": by_way(judged),
        "usual recipe": by_way([answer for answer in judged if WORLDS[answer["world"]].rate == USUAL]),
        "by cell": {
            f"{name}, {groups} x {records}": by_way(of(judged, world=name, groups=groups, records=records))
            for name in worlds
            for groups, records in sizes
        },
        "again": {
            way: {
                name: rate(
                    [answer for answer in of(answers, way=way, **place) if "again" in answer],
                    lambda answer: answer["again"] <= 0.05,
                )
                for name, place in {"all": {}, **{world: {"world": world} for world in worlds}}.items()
            }
            for way in ("holdout", "retrained")
        },
        "field": {
            str(share): {name: rate(of(answers, way="others", used=share), holds) for name, (_, holds) in FIELD.items()}
            for share in SHOWN
        },
    }


def counted(found: dict[str, Any]) -> str:
    return (
        f"{found['targets']:,} targets (deals of {found['models']:,} language models), asked by {found['tables']:,} "
        f"sets of records, in {len(found['worlds'])} worlds"
    )


def sentences(found: dict[str, Any]) -> list[str]:
    """What the tables say, in bullet points."""
    cells, usual, field = found["all worlds"], found["usual recipe"], found["field"]
    missed = {way: 1 - (cells[way]["covered"]["share"] or 0.0) for way in WAYS}
    return [
        "- **State the groups.** Where authors were dealt whole and the table does not say so, "
        f"{percent(cells['log']['false alarms'])} of models that never used the query set are called `not forgotten`, "
        f"in place of {percent(cells['log, groups']['false alarms'])}. The sets also look as if they were not dealt, "
        f"so of models that used all {percent(cells['log']['found'])} are found, in place of "
        f"{percent(cells['log, groups']['found'])}.",
        "- **Known members clear more than models of known truth**: with the usual recipe, of models that never used "
        f"the query set {percent(usual['members']['forgotten'])} are called `forgotten` with members, "
        f"{percent(usual['known 8']['forgotten'])} with 8 models of each kind. Most others are `inconclusive`.",
        f"- **Limits hold**: they are below the truth in {missed['members']:.1%} with members, and in "
        f"{missed['known 1']:.1%}, {missed['known 3']:.1%} and {missed['known 8']:.1%} with 1, 3 and 8 models of each "
        "kind; 5% is allowed.",
        f"- **Others' numbers**: forget quality finds {percent(field['1.0']['forget_quality'])} of what used all. "
        f"privleak and LLM dataset inference find nearly all, and accuse {percent(field['0.0']['privleak'])} and "
        f"{percent(field['0.0']['dataset_inference'])} of the models that never used the query set.",
    ]


def lines(found: dict[str, Any]) -> list[str]:
    """The page: all worlds, the worst, others' numbers; by world and size."""
    return [
        "# How often verdicts on language models are wrong, by tables of scores",
        "",
        f"{counted(found)}; with exact 95% intervals. {len(found['final'])} worlds were looked at only once, at the "
        f"end: {', '.join(found['final'])}.",
        "",
        *(f"- {words}" for words in PROTOCOL),
        "",
        "The query set and the holdout of models that used none of either were dealt anew, 8 groups of 10 records "
        f"against 8: p was at most 5% in {shown(found['again']['holdout']['all'])}, and beside 8 retrained models (3 "
        f"of the weak recipe) in {shown(found['again']['retrained']['all'])}; by world "
        + ", ".join(
            f"{name} {brief(found['again']['holdout'][name])} and {brief(found['again']['retrained'][name])}"
            for name in found["worlds"]
        )
        + ". A log that does not state groups takes records for what was dealt: its level is not that of the deal.",
        "",
        *LAYOUT.overview(counted(found), found, "by cell", "worlds and sizes, groups of a set x records of a group"),
        "Others' numbers of the same records, read as `used` or `not forgotten`:",
        "",
        *table(
            ["", *SHOWN.values()],
            (
                [words, *(interval(found["field"][str(share)][name]) for share in SHOWN)]
                for name, (words, _) in FIELD.items()
            ),
        ),
        "",
        *sentences(found),
        *LAYOUT.breakdown("world, groups of a set x records of a group", found["by cell"]),
    ]


def summary(result: dict[str, Any]) -> list[Row]:
    """What `score_rates` says of itself in `experiments/README.md`."""
    found = result["rates"]
    return [
        Row(
            "tofu2024",
            "Error rates of tables of scores of language models",
            f"{MEASURES[name].words}: {'; '.join(WAYS.values())}",
            "none given",
            ", ".join(LAYOUT.cell(found["all worlds"], way, name, lambda one: percent(one, 1)) for way in WAYS),
            f"Over {found['targets']:,} targets (deals of {found['models']:,} language models) in "
            f"{len(found['worlds'])} worlds of small models of words trained from nothing: no claim about large ones.",
            "--cache FOLDER --data FOLDER",
        )
        for name in ("false alarms", "wrong forgotten", "covered", "found", "half found")
    ]


if __name__ == "__main__":
    main()
