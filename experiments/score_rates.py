"""How often verdicts on language models are wrong, by tables of scores and by what is given beside the query set.

    python -m experiments.score_rates --cache FOLDER --data TOFU --train   # trains; call it again where it was stopped
    python -m experiments.score_rates --cache FOLDER --data TOFU --judge   # answers; call it again where it was stopped
    python -m experiments.score_rates --cache FOLDER --data TOFU --lessons # answers with the difficulty of texts
    python -m experiments.score_rates --cache FOLDER                       # the tables

TOFU is the folder of `forget10.jsonl.gz` and `retain90.jsonl.gz` (Maini, Feng et al. 2024). In each world
(`score_rates_worlds`) small language models are trained side by side, and some are unlearned (`score_rates_models`).
Each is judged in the deals in which it used none, a quarter, half or all of the query set (`score_rates_judge`), by
`jaxaudit.audits.ks.scores.judge_scores`, which is what `jaxaudit ks --scores` asks. FOLDER keeps the scores of all
models, and the answers by world and deal. On one CPU core: 20 minutes to train, 30 to answer. Writes
`results/score_rates-DEVICE.json`, `.md` and `.png`.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.figures import write
from experiments.record import RESULTS, describe_run
from experiments.score_rates_judge import Answer, judged_deal, read_trained
from experiments.score_rates_models import train
from experiments.score_rates_page import drawing, lines
from experiments.score_rates_summary import summarise
from experiments.score_rates_texts import judged_texts
from experiments.score_rates_worlds import DEALS, WORLDS, draw_corpus
from jaxaudit.metrics.usage import STATED_FRACTION


def judge(name: str, places: Sequence[int], folder: Path, data: Path | None) -> None:
    """Adds the answers about these deals of a world, where they were not judged yet."""
    paths = {place: folder / f"answers-{name}-{place}.json" for place in places}
    if all(path.exists() for path in paths.values()) or not (folder / f"{name}.npz").exists():
        return
    trained = read_trained(folder / f"{name}.npz", WORLDS[name], draw_corpus(WORLDS[name], data))
    for place, path in paths.items():
        if not path.exists():
            started = time.time()
            path.write_text(json.dumps(list(judged_deal(name, trained, place))))
            print(f"{name}, deal {place}: {time.time() - started:.0f} s", flush=True)


def judge_lessons(name: str, folder: Path, data: Path | None) -> None:
    """Adds the answers about a world's targets with what texts teach of their difficulty."""
    path, world = folder / f"lessons-{name}.json", WORLDS[name]
    if not path.exists() and (folder / f"{name}.npz").exists():
        corpus, started = draw_corpus(world, data), time.time()
        trained = read_trained(folder / f"{name}.npz", world, corpus)
        path.write_text(json.dumps(list(judged_texts(name, world, corpus, trained))))
        print(f"{name}, lessons: {time.time() - started:.0f} s", flush=True)


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
    parser.add_argument("--lessons", action="store_true", help="answer with what texts teach of their difficulty")
    parser.add_argument("--deals", nargs="*", type=int, default=list(range(len(DEALS))), help="that are judged")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    started = time.time()
    for name in arguments.worlds if arguments.train else ():
        train(name, WORLDS[name], draw_corpus(WORLDS[name], arguments.data), arguments.cache)
        print(f"{name}: {time.time() - started:.0f} s", flush=True)
    for name in arguments.worlds if arguments.judge else ():
        judge(name, arguments.deals, arguments.cache, arguments.data)
    for name in arguments.worlds if arguments.lessons else ():
        judge_lessons(name, arguments.cache, arguments.data)
    if arguments.train or arguments.judge or arguments.lessons:
        return
    answers, lessons = (
        answers_of(arguments.cache, files, arguments.worlds) for files in ("answers-{}-[0-9].json", "lessons-{}.json")
    )
    run = describe_run({"stated": STATED_FRACTION}, 0.0)
    del run["seconds"]
    found = summarise(answers, lessons)
    record = {"experiment": "score_rates", **run, "rates": found}
    print(write(arguments.out, "score_rates", record, lines(found), drawing(answers)).read_text())


if __name__ == "__main__":
    main()
