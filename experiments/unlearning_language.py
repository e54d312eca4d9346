"""Methods for language models beside retraining, on TOFU: U-LiRA, forgetting quality, forget quality and privleak.

    python -m experiments.unlearning_language --data FOLDER        # one CPU core: about ten minutes

TOFU (Maini, Feng et al. 2024): questions on invented authors. `FOLDER` has `forget10.jsonl.gz` and `retain90.jsonl.gz`.
Reduced: 1 author of 20 questions is forgotten of 10, 2 more are test records; small language models of words (2 layers
of 32), trained from nothing; answers are cut after 24 words. Of 16 seeds the models of 8 that each method unlearned are
compared with 8 retrained models of the other seeds. Methods are tried at their defaults and at five times their
learning rate: their authors' were made for models of billions of parameters. Nothing was chosen by the outcome. Writes
`results/unlearning_language-DEVICE.json` and `.md`.
"""

import argparse
import gzip
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from experiments.record import RESULTS, describe_run, device_slug
from experiments.summary import Row
from experiments.unlearning_methods import ranged, rounded, three
from jaxaudit import models
from jaxaudit.audits.unlearn.audit import compare_unlearning
from jaxaudit.audits.unlearn.result import MethodResult
from jaxaudit.data import concatenate
from jaxaudit.data.sequences import sequences, word_tokenizer
from jaxaudit.data.texts import Texts
from jaxaudit.ensemble import Execution
from jaxaudit.learners.language_model import language_model
from jaxaudit.metrics.tofu import NOMINAL
from jaxaudit.models import hidden_states
from jaxaudit.unlearning import (
    Unlearn,
    fine_tune,
    gradient_ascent,
    gradient_difference,
    negative_gradient,
    npo,
    rmu,
    sim_npo,
)

AUTHOR, FORGOTTEN, RETAINED, TESTED = 20, 1, 9, 2
"""Questions of an author, and authors of each set."""
MOST_WORDS, PERTURBED, SEEDS, TIMES = 24, 5, 16, 5
EPOCHS, BATCH, WIDTH, LAYERS, RATE = 10, 8, 32, 2, 3e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seed", type=int, default=7)
    given, started = parser.parse_args(), time.time()
    lines = [_lines(given.data / f"{name}.jsonl.gz") for name in ("forget10", "retain90")]
    forgotten, others = lines[0][: FORGOTTEN * AUTHOR], lines[1][: (RETAINED + TESTED) * AUTHOR]
    wrong = [(record, answer) for record in forgotten for answer in _others(record)]
    sets = [
        _texts(others[: RETAINED * AUTHOR]),
        _texts(forgotten),
        _texts(others[RETAINED * AUTHOR :]),
        _texts([record for record, _ in wrong], [answer for _, answer in wrong]),
    ]
    tokenizer = word_tokenizer(sets)
    retained, removed, test, asked = sequences(sets, tokenizer)
    train, length = concatenate([retained, removed], "tofu"), retained.inputs.shape[1]
    forget = np.arange(len(train)) >= len(retained)
    learner = language_model(
        partial(models.GPT, depth=LAYERS, width=WIDTH),
        length,
        tokenizer.vocabulary,
        optimizer=optax.adamw(RATE, weight_decay=0.01),
        epochs=EPOCHS,
        batch_size=BATCH,
    )
    audit = compare_unlearning(
        *(jax.random.key(given.seed), train, test, learner, forget[None]),
        amnesiac=False,
        methods=methods_for(partial(rmu, hidden=hidden_states(learner.net))),
        seeds=given.seeds,
        other_answers=[asked.inputs.reshape(len(removed), -1, length)],
        execution=Execution(models_per_batch=8),
    )
    record = {
        "experiment": "unlearning_language",
        **describe_run(vars(given), time.time() - started),
        "records": {"forgotten": len(removed), "retained": len(retained), "test": len(test)},
        "tokens": [length, tokenizer.vocabulary],
        "methods": {each.name: row(each) for each in audit.result.methods if each.challenge},
    }
    stem = RESULTS / f"unlearning_language-{device_slug()}"
    Path(f"{stem}.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    Path(f"{stem}.md").write_text("\n".join(page(record)) + "\n")
    print("\n".join(page(record)))


def methods_for(misdirection: Any) -> dict[str, Unlearn]:
    """Every method at its default and at a larger learning rate, by the name of its row."""
    known: dict[str, tuple[Any, float]] = {
        "fine-tuning": (fine_tune, 0.01),
        "gradient ascent": (gradient_ascent, 0.003),
        "NegGrad+": (negative_gradient, 0.01),
        "gradient difference": (gradient_difference, 2e-4),
        "NPO": (npo, 2e-4),
        "SimNPO": (sim_npo, 2e-4),
        "RMU": (misdirection, 2e-4),
    }
    return {
        f"{name}, rate {rate * times:g}": partial(method, learning_rate=rate * times, batch_size=BATCH)
        for name, (method, rate) in known.items()
        for times in (1, TIMES)
    }


def row(method: MethodResult) -> dict[str, Any]:
    """One method's numbers, of seeds enough to compare models."""
    challenge, tofu, scores = method.challenge, method.tofu, method.scores
    assert challenge is not None
    assert tofu is not None
    levels = (scores.forgotten_log_likelihood, scores.remaining_log_likelihood, scores.test_log_likelihood)
    return {
        "quality": three(challenge.quality),
        "u_lira": three(method.u_lira),
        "forget_quality": tofu.forget_quality,
        "privleak": tofu.privleak,
        "log_likelihood": [None if each is None else rounded(each.mean) for each in levels],
        "told": [name for name, place in method.places.items() if place.differs],
    }


def page(record: dict[str, Any]) -> list[str]:
    half, records = record["options"]["seeds"] // 2, record["records"]
    length, words = record["tokens"]
    return [
        "# Methods for language models beside retraining, on TOFU",
        "",
        f"{half} models a method against {half} retrained models of other seeds; {records['forgotten']} texts (an "
        f"author) of {records['forgotten'] + records['retained']} forgotten, {records['test']} test texts of other "
        f"authors, {length} tokens of {words:,}; {record['device']}, {record['seconds']:.0f} s. Intervals at 95%, over "
        "models. U-LiRA is the accuracy of an attack that knows the method, 0.5 is a guess; F is the forgetting "
        "quality of the challenge of 2023, larger is better; forget quality (TOFU's p-value) and privleak (percent) "
        "are medians over pairs of a model and a retrained one. Read each beside the row `retraining`, which is "
        "retraining once more. Log-likelihoods are means over seeds, in nats a token. The last column counts scores "
        "that lie above or below those of retrained models, over all seeds. The first rate of a method is its default.",
        "",
        "| models | U-LiRA | F | forget quality | privleak | log-likelihood: forgotten | retained | test | scores |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(name, found) for name, found in record["methods"].items()),
        "",
        *_sentences(record["methods"]),
    ]


def _sentences(methods: dict[str, Any]) -> list[str]:
    judged = {name: found for name, found in methods.items() if name not in ("original", "retraining")}
    alike = [name for name, found in judged.items() if found["u_lira"][1] <= 0.5]
    passed = [f"{name} ({found['forget_quality']:.2g})" for name, found in judged.items() if _passes(found)]
    return [
        f"- U-LiRA does not distinguish from retraining: {', '.join(alike) or 'none'}.",
        f"- Forget quality above 0.05, where TOFU reads a model as retrained: {', '.join(passed) or 'none'}.",
    ]


def _passes(found: dict[str, Any]) -> bool:
    return found["forget_quality"] > NOMINAL


def _line(name: str, found: dict[str, Any]) -> str:
    cells = [ranged(found["u_lira"], 2), ranged(found["quality"], 2), f"{found['forget_quality']:.2g}"]
    cells += [f"{found['privleak']:.0f}", *(f"{each:.2f}" for each in found["log_likelihood"])]
    return f"| {name} | {' | '.join(cells)} | {len(found['told'])} of 5 |"


def summary(result: dict[str, Any]) -> list[Row]:
    """What this experiment says of itself in `experiments/README.md`."""
    methods = result["methods"]
    names = [name for name in methods if name not in ("original", "retraining")]
    passed = [name for name in names if _passes(methods[name])]
    first = {name.partition(",")[0]: methods[name]["u_lira"][0] for name in reversed(names)}
    shown = "; ".join(
        [
            ", ".join(f"{name}: {methods[name]['u_lira'][0]:.2f}" for name in ("retraining", "original")),
            ", ".join(f"{name}: {first[name]:.2f}" for name in reversed(first)),
            f"forget quality above 0.05: {', '.join(passed) or 'none'}",
        ]
    )
    return [
        Row(
            "tofu2024",
            "Unlearning methods for language models",
            "accuracy of U-LiRA at default rates, 20 questions of an author forgotten of 200; methods that forget "
            "quality does not tell from retraining, at either rate",
            "none given: models of billions of parameters, without U-LiRA",
            shown,
            "Small models of words trained from nothing, 8 models a side, one author: no ranking of methods whose "
            "intervals overlap, and no claim about large models.",
            "--data FOLDER",
        )
    ]


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _others(record: dict[str, Any]) -> list[str]:
    return [record["paraphrased_answer"], *record["perturbed_answer"][:PERTURBED]]


def _texts(records: Sequence[dict[str, Any]], answers: Sequence[str] | None = None) -> Texts:
    said = [record["answer"] for record in records] if answers is None else answers
    cut = tuple(" " + " ".join(each.split()[:MOST_WORDS]) for each in said)
    return Texts("question", tuple(record["question"] for record in records), cut, (b"",) * len(cut), "tofu")


if __name__ == "__main__":
    main()
