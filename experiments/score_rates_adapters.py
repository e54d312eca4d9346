"""Are fine-tunes by adapters judged rightly, where models of known truth are of another rank, length or kind?

    python -m experiments.score_rates_adapters --cache FOLDER --data TOFU --train   # trains and answers, or goes on
    python -m experiments.score_rates_adapters --cache FOLDER                       # the tables

TOFU is the folder of `forget10.jsonl.gz` and `retain90.jsonl.gz` (Maini, Feng et al. 2024). Groups, parts, deals and
scores are those of `score_rates`; what is trained is in `score_rates_adapters_models`: fine-tunes of one small base
model a world, by adapters (LoRA) of three ranks and three lengths, and as models of known truth by all weights or by
adapters of one rank and length. What `jaxaudit ks --scores` says of each is asked beside a holdout, known members,
and models of known truth, with and without a holdout (`score_rates_adapters_judge`). FOLDER keeps scores and answers.
On two CPU cores: 15 minutes to train, 20 to answer. Writes `results/score_rates_adapters-DEVICE.json`, `.md` and
`.png`.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.figures import write
from experiments.record import RESULTS, describe_run
from experiments.score_rates_adapters_judge import judged_adapters, read_tuned
from experiments.score_rates_adapters_models import ADAPTED, train_adapters
from experiments.score_rates_adapters_page import adapter_drawing, adapter_lines
from experiments.score_rates_adapters_summary import summarise_adapters
from experiments.score_rates_worlds import DEALS
from jaxaudit.metrics.usage import STATED_FRACTION


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


def answers_in(folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """The answers about these worlds, with their names."""
    return [
        {**answer, "world": name}
        for name in names
        for path in sorted(folder.glob(f"adapters-{name}-[0-9].json"))
        for answer in json.loads(path.read_text())
    ]


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
    answers = answers_in(arguments.cache, arguments.worlds)
    run = describe_run({"stated": STATED_FRACTION}, 0.0)
    del run["seconds"]
    found = summarise_adapters(answers)
    record = {"experiment": "score_rates_adapters", **run, "rates": found}
    print(
        write(arguments.out, "score_rates_adapters", record, adapter_lines(found), adapter_drawing(answers)).read_text()
    )


if __name__ == "__main__":
    main()
