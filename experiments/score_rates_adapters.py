"""Are fine-tunes by adapters judged rightly, where models of known truth are of another rank, length or kind?

    python -m experiments.score_rates_adapters --cache FOLDER --data TOFU --train   # trains and answers, or goes on
    python -m experiments.score_rates_adapters --cache FOLDER                       # the tables

TOFU is the folder of `forget10.jsonl.gz` and `retain90.jsonl.gz` (Maini, Feng et al. 2024). Groups, parts, deals and
scores are those of `score_rates`; what is trained is in `score_rates_adapters_worlds`: fine-tunes of one small base
model a world, by adapters (LoRA) of three ranks and three lengths, and as models of known truth by all weights or by
adapters of one rank and length. What `jaxaudit ks --scores` says of each is asked beside a holdout, known members,
and models of known truth, with and without a holdout. FOLDER keeps scores and answers.
On two CPU cores: 15 minutes to train, 20 to answer. Writes `results/score_rates_adapters-DEVICE.json` and `.md`.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.figures import write
from experiments.rates import Answer, Layout, Rate, of, percent, rate, rates, shown, table
from experiments.record import RESULTS, Row, describe_run
from experiments.score_rates import COUNTS, MEASURES, OF_LIMITS, answers_of
from experiments.score_rates_adapters_worlds import (
    ADAPTED,
    ALONE,
    KNOWN,
    TARGETS,
    judged_adapters,
    read_tuned,
    train_adapters,
)
from experiments.score_rates_worlds import DEALS
from jaxaudit.metrics.usage import STATED_FRACTION

KINDS = {"all weights": "fine-tunes of all weights", "rank 4": "adapters of rank 4"}
NOTHING = "a holdout"
GIVEN = {
    "holdout": NOTHING,
    "members": "a holdout and known members",
    **{
        f"{kind}, {way} {count}": f"{words}, {count} of each kind: {KINDS[kind]}"
        for kind in KNOWN
        for way, words, counts in (("known", "a holdout", COUNTS), ("alone", "no holdout", ALONE))
        for count in counts
    },
}
"""What the table has beside the query set; models of known truth with their recipe."""


LAYOUT = Layout(GIVEN, MEASURES, ("holdout",), OF_LIMITS)
PROTOCOL = (
    "A world is 60 authors of TOFU, or 60 invented patients of 10 notes each, in three parts of 20; its base model, of "
    "two layers, was trained on 60 others and is then frozen.",
    "Targets are adapters (LoRA) of rank 1, 4 and 16 beside all linear layers of the blocks, trained half as long, as "
    "long and twice as long as usual. A deal takes a part as known members, one as the query set, one as the holdout; "
    "a target used its members, and none, a quarter, half or all of the query set.",
    "Models of known truth are fine-tunes of the same base model by all weights, or by adapters of rank 4 of the usual "
    "length. So the latter have the recipe of one kind of target, and the former of none.",
    "A target is asked by 8 and by 20 groups of 10 records. Without a holdout the query set alone is in the table, and "
    "p (not used) rests on the models that never used it.",
    "The recipe is said to be the same (`--same-recipe`), which is true of one in nine targets beside adapters. With a "
    "holdout and three models or more the target is compared with them all the same; elsewhere the word alone decides, "
    "and without it no verdict would rest on these models.",
    "A world is one draw of groups, in three parts: targets of a part share their chance, so the intervals are too "
    "narrow. What the level is, the further deals show.",
)
WITH_MEMBERS, OF_ALL, OF_ADAPTERS = "members", "all weights, known 8", "rank 4, known 8"
OF_ONE, OF_THREE = "all weights, known 1", "all weights, known 3"
OWN = "rank 4, 1 x as long"
"""The recipe of targets that some models of known truth have, too."""


def by_given(answers: Sequence[Answer]) -> dict[str, dict[str, Rate]]:
    """Every measure of every way of giving data."""
    cells = {}
    for given in GIVEN:
        kind, _, way = given.rpartition(", ")
        cells[given] = rates(of(answers, kind=kind, way=way), MEASURES)
    return cells


def summarise_adapters(answers: Sequence[Answer]) -> dict[str, Any]:
    """Every rate that is reported. An answer has its world's name."""
    judged = [answer for answer in answers if "again" not in answer]
    again = [answer for answer in answers if "again" in answer]
    worlds = [name for name in ADAPTED if of(answers, world=name)]
    final = [name for name in worlds if ADAPTED[name].final]
    places: dict[str, dict[str, Any]] = {name: {"world": name} for name in worlds}
    recipes: dict[str, dict[str, Any]] = {str(one): {"rank": one.rank, "length": one.length} for one in TARGETS}

    def models(*more: str) -> int:
        return len({tuple(answer[name] for name in ("world", "rank", "length", "model", *more)) for answer in judged})

    return {
        "worlds": worlds,
        "final": final,
        "models": models(),
        "targets": models("deal"),
        "tables": len(of(judged, way="holdout")),
        "all worlds": by_given(judged),
        "looked at once": by_given([answer for answer in judged if answer["world"] in final]),
        "by world": {name: by_given(of(judged, **place)) for name, place in places.items()},
        "by recipe": {name: by_given(of(judged, **recipe)) for name, recipe in recipes.items()},
        "again": {
            KINDS.get(kind, NOTHING): {
                name: rate(of(again, kind=kind, **place), lambda answer: answer["again"] <= 0.05)
                for name, place in {"all": {}, **places, **recipes}.items()
            }
            for kind in ("", *KNOWN)
        },
    }


def counted_adapters(found: dict[str, Any]) -> str:
    return (
        f"{found['targets']:,} targets (deals of {found['models']:,} adapters), asked by {found['tables']:,} sets of "
        f"records, in {len(found['worlds'])} worlds"
    )


def adapter_sentences(found: dict[str, Any]) -> list[str]:
    """What the tables say, in bullet points, the worst first."""
    cells, by_recipe, again = found["all worlds"], found["by recipe"], found["again"]

    def worst_of(given: str, name: str) -> str:
        cell = LAYOUT.worst(by_recipe, given, name)
        return "-" if cell is None else percent(cell[1])

    def of_all(given: str, name: str) -> str:
        return percent(cells[given][name])

    return [
        "- **The user's word is not enough**: with one fine-tune of all weights of each kind nothing is compared, and "
        f"{of_all(OF_ONE, 'covered')} of limits are at or above what an adapter used; {of_all(OF_ONE, 'at stated')} of "
        f"adapters that used a quarter are called `forgotten` ({worst_of(OF_ONE, 'at stated')} of the worst recipe), "
        f"and {of_all(OF_ONE, 'wrong forgotten')} of those that used half or all ({worst_of(OF_ONE, 'wrong forgotten')}"
        ").",
        "- **With a holdout and 8 of each kind, most models of another recipe are noticed**, and no limit is given: "
        f"beside fine-tunes of all weights {of_all(OF_ALL, 'at stated')} of those that used a quarter and "
        f"{of_all(OF_ALL, 'wrong forgotten')} of half or all are called `forgotten`, and of those that used "
        f"nothing {of_all(OF_ALL, 'forgotten')}. With 3 of each kind some are missed "
        f"({worst_of(OF_THREE, 'wrong forgotten')} of half or all used in the worst recipe).",
        "- **A limit that is given all the same is no safer**: of the limits below 100%, "
        f"{of_all(OF_THREE, 'given covered')} hold beside 3 fine-tunes of all weights of each kind, "
        f"{of_all(OF_ALL, 'given covered')} beside 8, and {of_all(OF_ADAPTERS, 'given covered')} beside 8 adapters of "
        f"rank 4 ({percent(by_recipe[OWN][OF_ADAPTERS]['given covered'])} of their own recipe), since weaker adapters "
        f"are often not noticed; a quarter used is called `forgotten` in {of_all(OF_ADAPTERS, 'at stated')}, half or "
        f"all in {of_all(OF_ADAPTERS, 'wrong forgotten')}. With known members {of_all(WITH_MEMBERS, 'given covered')} "
        "hold: they show what the target itself remembers.",
        "- **Without a holdout the innocent are accused**: beside 8 fine-tunes of all weights "
        f"{of_all('all weights, alone 8', 'false alarms')} of adapters that never used the query set are called `not "
        f"forgotten` ({worst_of('all weights, alone 8', 'false alarms')} of the worst recipe), beside 8 adapters of "
        f"rank 4 {of_all('rank 4, alone 8', 'false alarms')} ({worst_of('rank 4, alone 8', 'false alarms')}; of their "
        f"own recipe {percent(by_recipe[OWN]['rank 4, alone 8']['false alarms'])}).",
        "- **With a holdout the level holds, whatever the models of known truth are**: when query set and holdout of "
        f"targets that used neither were dealt anew, p was at most 5% in {shown(again[NOTHING]['all'])}; beside 8 "
        f"retrained models of all weights in {shown(again[KINDS['all weights']]['all'])}, beside 8 adapters of rank 4 "
        f"in {shown(again[KINDS['rank 4']]['all'])}.",
        "- **Retrained models of another recipe still help to find use**: of half used, "
        f"{of_all('holdout', 'half found')} are found with a holdout alone, {of_all(OF_ALL, 'half found')} beside 8 "
        f"fine-tunes of all weights, {of_all(OF_ADAPTERS, 'half found')} beside 8 adapters of rank 4.",
    ]


def adapter_lines(found: dict[str, Any]) -> list[str]:
    """The page: all together, the worst; by recipe of the target and by world."""
    again = found["again"]
    return [
        "# Adapters of other rank and length than the models of known truth",
        "",
        f"{counted_adapters(found)}; with exact 95% intervals. {len(found['final'])} worlds were looked at only once, "
        f"at the end: {'; '.join(found['final'])}.",
        "",
        *(f"- {words}" for words in PROTOCOL),
        "",
        "The query set and the holdout of targets that used none of either were dealt anew, 8 groups of 10 records "
        "against 8; p was at most 5%, beside nothing else, and beside 8 retrained models of a kind:",
        "",
        *table(["", *again], ([name, *(shown(cells[name]) for cells in again.values())] for name in again[NOTHING])),
        "",
        *LAYOUT.overview(counted_adapters(found), found, "by recipe", "recipes of targets"),
        *adapter_sentences(found),
        *LAYOUT.breakdown("recipe of the target", found["by recipe"]),
        *LAYOUT.breakdown("world", found["by world"]),
    ]


def answer_about(name: str, folder: Path, data: Path | None) -> None:
    """Trains a world's fine-tunes and adds the answers about them, where they are not in `folder` yet."""
    paths = [folder / f"adapters-{name}-{place}.json" for place in range(len(DEALS))]
    if all(path.exists() for path in paths):
        return
    train_adapters(name, ADAPTED[name], data, folder)
    fine_tunes = read_tuned(name, ADAPTED[name], data, folder)
    for place, path in enumerate(paths):
        if not path.exists():
            started = time.time()
            path.write_text(json.dumps(list(judged_adapters(name, ADAPTED[name], fine_tunes, place))))
            print(f"{name}, deal {place}: {time.time() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="the folder of TOFU's files")
    parser.add_argument("--train", action="store_true", help="train and answer, rather than draw up the tables")
    parser.add_argument("--worlds", nargs="*", choices=list(ADAPTED), default=list(ADAPTED))
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.train:
        for name in arguments.worlds:
            answer_about(name, arguments.cache, arguments.data)
        return
    answers = answers_of(arguments.cache, "adapters-{}-[0-9].json", arguments.worlds)
    found = summarise_adapters(answers)
    record = {"experiment": "score_rates_adapters", **describe_run({"stated": STATED_FRACTION}), "rates": found}
    print(write(arguments.out, "score_rates_adapters", record, adapter_lines(found)).read_text())


def summary(result: dict[str, Any]) -> list[Row]:
    """What `score_rates_adapters` says of itself in `experiments/README.md`."""
    found = result["rates"]
    given = [way for way in GIVEN if not way.endswith(("1", "3"))]
    return [
        Row(
            "tofu2024",
            "Adapters of other rank and length than the models of known truth",
            f"{MEASURES[name].words}: {'; '.join(GIVEN[way] for way in given)}",
            "none given",
            ", ".join(LAYOUT.cell(found["all worlds"], way, name, lambda one: percent(one, 1)) for way in given),
            f"Over {found['targets']:,} targets (deals of {found['models']:,} adapters of nine recipes) in "
            f"{len(found['worlds'])} worlds, on base models of two layers: no claim about large ones.",
            "--cache FOLDER --data FOLDER",
        )
        for name in ("false alarms", "wrong forgotten", "at stated", "covered", "found", "half found")
    ]


if __name__ == "__main__":
    main()
