"""Do shadow adapters judge fine-tunes of a language model rightly, also fine-tunes of another recipe?

    python -m experiments.adapters_authors --data FOLDER        # two CPU cores: about half an hour

TOFU's invented authors (Maini, Feng et al. 2024), dealt whole: 12 are the query set, 12 the holdout, 24 the calibration
set, 12 known members. A small GPT-2 (2 layers of 96, words) is trained on 60 other authors and then frozen. Shadow
models are adapters of rank 8 on it (`jaxaudit shadows train --lora 8`), targets are adapters that used the members and
none, a quarter, half or all authors of the query set: with the shadow models' recipe, and with another rank, length
or learning rate. Answers are cut after 16 words.

Measured: what the members test finds, its upper limit against the truth, and its verdicts; the test of scores with
three models of other seeds as baselines when only the first 1, 2, 5 or 10 questions of each author are in question;
and attacks on each record with 2 to 64 shadow adapters, beside the loss, its zlib ratio and the difference from the
base model, which need no shadow model. Writes `results/adapters_authors-DEVICE.json`, `.md` and `.png`.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxaudit as ja
from experiments.figures import panels, write
from experiments.record import RESULTS, describe_run
from experiments.summary import Row
from jaxaudit.audits.bank_odds import score_outputs
from jaxaudit.data.sequences import padded, prompts_of
from jaxaudit.data.weights.weights import safetensors_bytes
from jaxaudit.ensemble import log_probs_many
from jaxaudit.learners.language_model import mean_log_likelihood
from jaxaudit.models.adapters import Adapters
from jaxaudit.models.causal import causal_model

AUTHOR, AUTHORS = 20, {"query": 12, "holdout": 12, "calibration": 24, "members": 12, "base": 60}
MOST_WORDS, WORDS = 16, 3000
WIDTH, LAYERS, POSITIONS = 96, 2, 96
BASE_EPOCHS, BASE_RATE, BATCH = 12, 3e-3, 16
RANK, EPOCHS, RATE = 8, 6, 1e-2
SHADOWS = 72
SHARES = {"none": 0.0, "a quarter": 0.25, "half": 0.5, "all": 1.0}
SEEDS = 3
RECIPES: dict[str, dict[str, float]] = {
    "as the shadow models": {},
    "rank 2": {"rank": 2},
    "rank 32": {"rank": 32},
    "half as long": {"epochs": EPOCHS / 2},
    "twice as long": {"epochs": 2 * EPOCHS},
    "a third of the rate": {"rate": RATE / 3},
    "twice the rate": {"rate": 2 * RATE},
}
FEWER = (1, 2, 5, 10, 20)
"""Questions of each author that are in question."""
MODELS = (2, 4, 8, 16, 32, 64)
"""Shadow models of attacks."""


class Sets(NamedTuple):
    """The folder of the base model and of the sets, and all records as tokens.

    Attributes:
        folder: has `base` and a file of each set.
        inputs: by set, `int32[n, length]`.
        texts: by set, the answers.
    """

    folder: Path
    inputs: Mapping[str, np.ndarray]
    texts: Mapping[str, Sequence[str]]


def prepared(data: Path, folder: Path, seed: int) -> Sets:
    """Deals the authors, writes the sets, and trains the base model."""
    with gzip.open(data / "retain90.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    authors = np.random.default_rng(seed).permutation(len(lines) // AUTHOR)
    read, start = {}, 0
    for name, count in AUTHORS.items():
        chosen = authors[start : start + count]
        start += count
        rows = [
            {
                "question": lines[author * AUTHOR + place]["question"],
                "answer": " ".join(lines[author * AUTHOR + place]["answer"].split()[:MOST_WORDS]),
                "author": int(author),
            }
            for author in chosen
            for place in range(AUTHOR)
        ]
        path = folder / f"{name}.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        read[name] = ja.read_texts(path)
    whole = [
        prompt + answer for each in read.values() for prompt, answer in zip(prompts_of(each), each.answers, strict=True)
    ]
    save_base(folder / "base", whole, seed)
    made = causal_model(folder / "base")
    encoded = [made.model.encode(prompts_of(each), each.answers) for each in read.values()]
    inputs = {
        name: each.inputs for name, each in zip(read, padded([*read.values()], encoded, 0, POSITIONS), strict=True)
    }
    trained = train_base(made, inputs["base"], seed)
    (folder / "base/model.safetensors").write_bytes(
        safetensors_bytes({name: np.asarray(each) for name, each in trained.items()})
    )
    return Sets(folder, inputs, {name: each.answers for name, each in read.items()})


def save_base(folder: Path, texts: Sequence[str], seed: int) -> None:
    """A GPT-2 with random weights, and a tokenizer of the most frequent words."""
    tokenizers: Any = import_module("tokenizers")
    transformers: Any = import_module("transformers")
    import_module("torch").manual_seed(seed)
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="<unknown>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = ["<end>", "<unknown>"]
    made.train_from_iterator(texts, tokenizers.trainers.WordLevelTrainer(vocab_size=WORDS, special_tokens=special))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", unk_token="<unknown>")
    tokenizer.save_pretrained(folder)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=POSITIONS,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


def train_base(made: Any, inputs: np.ndarray, seed: int) -> dict[str, Any]:
    """All weights of the base model, trained on its own authors."""
    steps, random = BASE_EPOCHS * len(inputs) // BATCH, np.random.default_rng(seed)
    rule = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, BASE_RATE, steps // 10, steps))

    def loss(weights: Any, tokens: Any) -> Any:
        logits = made.apply({**weights, **made.rest}, jnp.where(tokens < 0, ~tokens, tokens))
        return -jnp.mean(mean_log_likelihood(logits, tokens))

    @jax.jit
    def step(weights: Any, state: Any, tokens: Any) -> Any:
        updates, after = rule.update(jax.grad(loss)(weights, tokens), state, weights)
        return optax.apply_updates(weights, updates), after

    weights, state = made.weights, rule.init(made.weights)
    for _ in range(steps):
        weights, state = step(weights, state, jnp.asarray(inputs[random.choice(len(inputs), BATCH, replace=False)]))
    return dict(weights)


def shadow_bank(sets: Sets, seed: int) -> ja.Bank:
    """The bank that the command line trains."""
    words = ["--query", "query.jsonl", "--holdout", "holdout.jsonl", "--calibration", "calibration.jsonl"]
    words += ["--groups", "author", "--holdout-groups", "author", "--model", "base", "--lora", str(RANK)]
    words += ["--models", str(SHADOWS), "--designs", "guess", "--epochs", str(EPOCHS), "--optimizer", "adamw"]
    words += ["--learning-rate", str(RATE), "--batch-size", str(BATCH), "--seed", str(seed), "--out", "bank"]
    subprocess.run([sys.executable, "-m", "jaxaudit", "shadows", "train", *words], cwd=sets.folder, check=True)
    return ja.load_bank(sets.folder / "bank")


def targets_of(sets: Sets, recipe: Mapping[str, float], seed: int) -> tuple[list[str], np.ndarray]:
    """The share that each target used, and its log-likelihoods on query set, holdout and members, `[targets, n]`."""
    pool = np.concatenate([sets.inputs[name] for name in ("query", "holdout", "members")])
    query, others = AUTHORS["query"] * AUTHOR, AUTHORS["holdout"] * AUTHOR
    random, names, rows = np.random.default_rng(seed), [], []
    for name, share in SHARES.items():
        for _ in range(SEEDS):
            chosen = random.choice(AUTHORS["query"], round(share * AUTHORS["query"]), replace=False)
            names.append(name)
            rows.append(np.isin(np.arange(len(pool)) // AUTHOR, chosen) | (np.arange(len(pool)) >= query + others))
    rank = int(recipe.get("rank", RANK))
    learner = ja.language_model(
        Adapters(str(sets.folder / "base"), rank, 2.0 * rank),
        *(pool.shape[1], causal_model(sets.folder / "base").model.vocabulary),
        optimizer=optax.adamw(recipe.get("rate", RATE)),
        epochs=int(recipe.get("epochs", EPOCHS)),
        batch_size=BATCH,
    )

    def said(params: Any, _: Any) -> np.ndarray:
        return log_probs_many(learner, params, pool)[..., 0]

    keys, labels = jax.random.split(jax.random.key(seed), len(rows)), np.zeros(len(pool), np.int32)
    return names, ja.fit_many(keys, np.stack(rows), pool, labels, learner, execution=ja.Execution(4), summarize=said)


def judged(bank: ja.Bank, recipe: str, names: Sequence[str], numbers: np.ndarray, folder: Path) -> list[dict[str, Any]]:
    """The members test of each target, alone."""
    sizes = [AUTHORS[name] * AUTHOR for name in ("query", "holdout", "members")]
    members = ja.Examples(np.zeros((sizes[2], 0), np.float32), np.zeros(sizes[2], int), ("text",), "members")
    shadows = ja.open_bank(bank, members=members, member_groups=np.arange(sizes[2]) // AUTHOR)
    found = []
    for number, (name, row) in enumerate(zip(names, numbers, strict=True)):
        parts = []
        for part, of in zip(np.split(row, np.cumsum(sizes)[:-1]), ("q", "h", "m"), strict=True):
            path = folder / f"{of}.npy"
            np.save(path, part)
            parts.append(score_outputs(path, bank.description, len(part)))
        target = ja.FileTarget(parts[0], parts[1], on_members=parts[2])
        result = ja.judge(jax.random.key(number), shadows, [target], tests=[ja.MembersTest()]).targets[0]
        usage = result.usage[0]
        found.append(
            {
                "recipe": recipe,
                "used": name,
                "p": usage.p_never,
                "upper": usage.upper,
                "verdict": result.verdict,
                "loss": [-float(part.mean()) for part in np.split(row, np.cumsum(sizes)[:-1])],
            }
        )
    return found


def by_questions(names: Sequence[str], numbers: np.ndarray) -> list[dict[str, Any]]:
    """What the test of scores finds of fewer questions of each author; baselines are models of other seeds."""
    query = AUTHORS["query"] * AUTHOR
    unused = [place for place, name in enumerate(names) if name == "none"]
    found = []
    for questions in FEWER:
        rows = np.flatnonzero(np.arange(2 * query) % AUTHOR < questions)
        sets, groups = np.where(rows < query, "query", "holdout"), rows // AUTHOR
        for used in SHARES:
            p_values = []
            for place in (place for place, name in enumerate(names) if name == used):
                known = [other for other in unused if other != place][:3]
                columns = {f"baseline.{other}.loss": -numbers[other, rows] for other in known}
                table = ja.score_table({"set": sets, "group": groups, "target.loss": -numbers[place, rows], **columns})
                p_values.append(ja.judge_scores(jax.random.key(place), table).targets[0].usage[0].p_never)
            found.append({"questions": questions, "used": used, "p": [float(each) for each in p_values]})
    return found


def area(scores: np.ndarray, members: np.ndarray) -> float:
    """The area under the ROC curve of scores that are higher for members."""
    ranks = scores.argsort().argsort() + 1.0
    inside = members.sum()
    return float((ranks[members].sum() - inside * (inside + 1) / 2) / (inside * (~members).sum()))


def attacked(bank: ja.Bank, sets: Sets) -> list[dict[str, Any]]:
    """The area under the curve of attacks on the last eight models, with the first 2 to 64 as shadow models."""
    records = (AUTHORS["query"] + AUTHORS["holdout"]) * AUTHOR
    outputs = np.stack([np.load(bank.directory / f"outputs/{model:05}.npy").reshape(-1) for model in range(SHADOWS)])
    likely, members = outputs[:, :records].astype(np.float64), bank.membership[:, :records]
    odds = likely - np.log(-np.expm1(np.minimum(likely, -1e-7)))
    targets = range(max(MODELS), SHADOWS)
    packed = np.array([len(zlib.compress(each.encode())) for name in ("query", "holdout") for each in sets.texts[name]])
    made = causal_model(sets.folder / "base")
    tokens = jnp.asarray(np.concatenate([sets.inputs["query"], sets.inputs["holdout"]]))
    logits = jax.jit(made.apply)({**made.weights, **made.rest}, jnp.where(tokens < 0, ~tokens, tokens))
    base = np.asarray(mean_log_likelihood(logits, tokens))
    alone: dict[str, Any] = {
        "loss": likely,
        "zlib": likely / packed,
        "reference (the base model)": likely - base,
    }
    found = [
        {"attack": name, "models": 0, "auc": float(np.mean([area(scores[each], members[each]) for each in targets]))}
        for name, scores in alone.items()
    ]
    for count in MODELS:
        own, inside = odds[:count], members[:count]
        outside = np.where(inside, np.nan, own)
        # With few models a record may be in all of them: then the mean of all models is its difficulty.
        mean = np.where(
            inside.all(axis=0), own.mean(axis=0), np.nanmean(np.where(inside.all(axis=0), own, outside), axis=0)
        )
        areas = [area(odds[each] - mean, members[each]) for each in targets]
        found.append(
            {"attack": "log-odds less the mean of shadow models", "models": count, "auc": float(np.mean(areas))}
        )
    return found


def page(result: dict[str, Any]) -> list[str]:
    parts = (__doc__ or "").split("\n\n")
    lines = [
        "# Shadow adapters and fine-tunes of a language model",
        "",
        " ".join(parts[2].split()),
        "",
        " ".join(parts[3].split()),
    ]
    lines += ["", "## The members test, by recipe of the target", ""]
    lines += [
        "| recipe | used | found at 5% | limit at or above the truth | forgotten | inconclusive | not forgotten |"
    ]
    lines += ["|---" * 7 + "|"]
    for row in rates(result):
        lines.append(
            f"| {row['recipe']} | {row['used']} | {row['found']:.0%} | {row['above']:.0%} | {row['forgotten']} | "
            f"{row['inconclusive']} | {row['not forgotten']} |"
        )
    lines += ["", f"{SEEDS} targets a row, all of one deal: rows are no measure of error rates.", ""]
    lines += [
        "## By questions of an author",
        "",
        f"| questions | {' | '.join(SHARES)} |",
        "|---" * (len(SHARES) + 1) + "|",
    ]
    for questions in FEWER:
        cells = [
            each["p"]
            for used in SHARES
            for each in result["questions"]
            if (each["questions"], each["used"]) == (questions, used)
        ]
        shown = " | ".join(f"{np.mean(np.array(p) <= 0.05):.0%} ({np.median(p):.2g})" for p in cells)
        lines.append(f"| {questions} | {shown} |")
    lines += [
        "",
        "Found at 5%, and the median p, of targets with the shadow models' recipe.",
        "",
        "## Attacks on a record",
        "",
    ]
    lines += ["| attack | shadow models | area under the curve |", "|---|---|---|"]
    lines += [f"| {each['attack']} | {each['models']} | {each['auc']:.3f} |" for each in result["attacks"]]
    return lines


def rates(result: dict[str, Any]) -> list[dict[str, Any]]:
    """How often each verdict was given, by recipe and share."""
    rows = []
    for recipe in RECIPES:
        for used, share in SHARES.items():
            mine = [each for each in result["judged"] if (each["recipe"], each["used"]) == (recipe, used)]
            if mine:
                verdicts = [each["verdict"] for each in mine]
                uppers = [1.0 if each["upper"] is None else each["upper"] for each in mine]
                rows.append(
                    {
                        "recipe": recipe,
                        "used": used,
                        "found": float(np.mean([each["p"] <= 0.05 for each in mine])),
                        "above": float(np.mean([each >= share - 1e-9 for each in uppers])),
                        **{name: verdicts.count(name) for name in ("forgotten", "inconclusive", "not forgotten")},
                    }
                )
    return rows


def drawn(result: dict[str, Any]) -> Any:
    """What is found by questions of an author, and the attacks."""
    figure, (left, right) = panels(1, 2, width=9.5, height=3.6)
    for used in SHARES:
        found = [np.mean(np.array(each["p"]) <= 0.05) for each in result["questions"] if each["used"] == used]
        left.plot(FEWER, found, marker="o", ms=3, label=f"{used} used")
    left.set(title="Found at 5%", xlabel="questions of each author", ylim=(-0.02, 1.02))
    left.legend(fontsize=6)
    curve = partial(filter, lambda each: each["models"])
    right.plot(
        *zip(*((each["models"], each["auc"]) for each in curve(result["attacks"])), strict=True), marker="o", ms=3
    )
    alone = [each for each in result["attacks"] if not each["models"]]
    for each, style in zip(alone, (":", "--", "-."), strict=True):
        right.axhline(each["auc"], linewidth=0.8, linestyle=style, label=each["attack"], color="0.4")
    right.set(title="Attacks on a record", xlabel="shadow adapters", ylabel="area under the curve", xscale="log")
    right.set_xticks(MODELS, [str(each) for each in MODELS])
    right.minorticks_off()
    right.legend(fontsize=6)
    return figure


def summary(result: dict[str, Any]) -> list[Row]:
    rows = rates(result)
    never = [each for each in rows if each["used"] == "none"]
    fully = [each for each in rows if each["used"] == "all"]
    wrong = sum(each["forgotten"] for each in rows if each["used"] in ("half", "all"))
    aucs = {each["models"]: each["auc"] for each in result["attacks"] if each["models"]}
    return [
        Row(
            "tofu2024",
            "Shadow adapters",
            "found of targets that used all and none, over seven recipes; area under the curve with 2 and 64 adapters",
            "none: no tool trains shadow adapters",
            f"{np.mean([each['found'] for each in fully]):.0%} and {np.mean([each['found'] for each in never]):.0%}, "
            f"`forgotten` of half or all used: {wrong}; {aucs[2]:.2f} and {aucs[64]:.2f}",
            "A base model of 2 layers on two cores, one deal of authors: no claim about large models.",
            "--data FOLDER",
        )
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    given, started = parser.parse_args(arguments), time.time()
    result: dict[str, Any] = {"experiment": "adapters_authors", "judged": []}
    with tempfile.TemporaryDirectory() as place:
        sets = prepared(given.data, Path(place), given.seed)
        bank = shadow_bank(sets, given.seed)
        for recipe, options in RECIPES.items():
            names, numbers = targets_of(sets, options, given.seed + 1)
            result["judged"] += judged(bank, recipe, names, numbers, Path(place))
            if not options:
                result["questions"] = by_questions(names, numbers)
            print(recipe, [(each["used"], each["verdict"], each["upper"]) for each in result["judged"][-len(names) :]])
        result["attacks"] = attacked(bank, sets)
    result |= describe_run(vars(given), time.time() - started)
    write(RESULTS, "adapters_authors", result, page(result), drawn(result))


if __name__ == "__main__":
    main()
