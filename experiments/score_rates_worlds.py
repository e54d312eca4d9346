"""The worlds of `score_rates`: two corpora, and which authors' records each language model is trained on.

A world has 60 groups (authors, or patients) of `PER_GROUP` records, in three parts of 20. A deal takes one part as
known members, one as the query set and one as the holdout: six deals. A model that was trained on one part alone never
used the query set of two deals; a model of two parts used all of the query set of two deals; others used a half or a
quarter of the groups of one. Groups are dealt at random, so that each subset of a query set beside an equal one of its
holdout is a deal, too.

`tofu`: questions on invented authors (Maini, Feng et al. 2024), a model is judged by its answers. `notes`: what a ward
writes of invented patients, made up by a grammar here: a whole text is judged, and what belongs to a patient, from the
name to the usual drug, is drawn anew for each.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxaudit import fit_many, models
from jaxaudit.data.sequences import sequences, word_tokenizer
from jaxaudit.data.texts import Texts
from jaxaudit.ensemble import Execution, log_probs_many
from jaxaudit.learners.language_model import LanguageModelLearner, following_tokens, language_model

PER_GROUP, PART, PARTS = 10, 20, 3
"""Records of a group, groups of a part, and parts."""
GROUPS = PART * PARTS
MOST_WORDS, MOST_ASKED, WORDS, WRONG = 20, 14, 1_000, 1
"""Words of an answer and of the vocabulary, and wrong answers of a record."""
USUAL, WEAK = 2e-3, 5e-4
SHARES = {"half": 0.5, "a quarter": 0.25}


class World(NamedTuple):
    """What is trained where.

    Attributes:
        corpus: `tofu` or `notes`.
        draw: of the corpus's groups; a world of another draw has other groups.
        rate: of learning, at its highest; a low one leaves little memory.
        copies: models of each part and of each two parts; a deal's models of known truth are all but the target.
        partial: models of each deal and share that used a part of the query set.
        final: whether its answers were looked at once, when the code was done.
    """

    corpus: str
    draw: int
    rate: float
    copies: int = 9
    partial: int = 2
    final: bool = False


WORLDS = {
    "tofu": World("tofu", 0, USUAL),
    "notes": World("notes", 0, USUAL),
    "tofu, weak": World("tofu", 1, WEAK, copies=4, partial=1),
    "notes, weak": World("notes", 1, WEAK, copies=4, partial=1),
    "tofu, again": World("tofu", 2, USUAL, final=True),
    "notes, again": World("notes", 2, USUAL, final=True),
}


class Corpus(NamedTuple):
    """The records of a world, group after group.

    Attributes:
        inputs: as `jaxaudit.data.sequences`, `int32[records, length]`.
        paraphrased: the same in other words. `wrong`: with other facts, `WRONG` times all records.
        texts: the records. `packed`: bytes that zlib packs a judged text into.
        vocabulary: the number of tokens.
    """

    inputs: np.ndarray
    paraphrased: np.ndarray
    wrong: np.ndarray
    texts: tuple[str, ...]
    packed: np.ndarray
    vocabulary: int


class Deal(NamedTuple):
    """A deal of a world: the parts that are known members, query set and holdout."""

    members: int
    query: int
    holdout: int


class Planned(NamedTuple):
    """What a model of a world is trained on.

    Attributes:
        parts: that it used whole.
        deal: of which it used a share of the query set; None if it did not.
        share: what it used of that deal's query set.
        groups: of each group, whether the model used it.
    """

    parts: tuple[int, ...]
    deal: Deal | None
    share: float
    groups: np.ndarray

    def used(self, deal: Deal) -> float | None:
        """The share of the deal's query set that this model used; None if it is no target of this deal."""
        if self.deal is not None:
            return self.share if self.deal == deal else None
        if deal.members not in self.parts or deal.holdout in self.parts:
            return None
        return float(deal.query in self.parts)


DEALS = tuple(Deal(*order) for order in permutations(range(PARTS)))


def planned(world: World) -> list[Planned]:
    """The models of a world; the draw of a share's groups is fixed."""
    generator, part_of = np.random.default_rng([world.draw, 17]), np.arange(GROUPS) // PART
    whole = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    models = [Planned(parts, None, 0.0, np.isin(part_of, parts)) for parts in whole for _ in range(world.copies)]
    for deal in DEALS:
        for share in SHARES.values():
            for _ in range(world.partial):
                chosen = generator.choice(np.flatnonzero(part_of == deal.query), round(share * PART), replace=False)
                groups = (part_of == deal.members) | np.isin(np.arange(GROUPS), chosen)
                models.append(Planned((deal.members,), deal, share, groups))
    return models


def draw_corpus(world: World, data: Path | None) -> Corpus:
    """The records of a world; those of `tofu` are read from `data`."""
    return tokens_of(world, drawn_records(world, data))


class Record(NamedTuple):
    """A record, the same in other words, and with other facts."""

    prompt: str
    text: str
    paraphrase: str
    wrong: Sequence[str]


def drawn_records(world: World, data: Path | None) -> list[Record]:
    """The records of a world, group after group."""
    if world.corpus == "notes":
        generator = np.random.default_rng([world.draw, 5])
        return [note for group in range(GROUPS) for note in _notes(generator, group)]
    if data is None:
        raise SystemExit("a world of TOFU needs --data FOLDER, with forget10.jsonl.gz and retain90.jsonl.gz")
    return _questions(data, world.draw)


def _questions(folder: Path, draw: int) -> list[Record]:
    """Questions of authors with wrong answers; each draw has other authors."""
    lines: list[dict[str, Any]] = []
    for name in ("forget10", "retain90"):
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            lines += [json.loads(line) for line in file]
    authors = [lines[start : start + 20] for start in range(0, len(lines), 20)]
    whole = [author for author in authors if all("perturbed_answer" in line for line in author)]
    order = np.random.default_rng(31).permutation(len(whole))[draw * GROUPS :][:GROUPS]
    return [
        Record(line["question"], line["answer"], line["paraphrased_answer"], line["perturbed_answer"][:WRONG])
        for place in order
        for line in whole[place][:PER_GROUP]
    ]


WORDS_OF_NOTES = {
    "onset": "b d f g k l m n p r s t v z br dr kl tr",
    "vowel": "a e i o u",
    "end": "n l r s x th m",
    "complaint": "cough fever rash dizziness nausea cramps insomnia thirst swelling numbness tremor fatigue",
    "state": "clear raised low stable irregular swollen tender normal faint weak coarse pale",
    "sign": "pulse breathing skin reflexes temperature pressure appetite sleep gait vision",
    "drug": "ralimol tevaprin osquinat dorbital meliphan cuvarin zelotab hexadrin noctural biperan lunofen pravidol",
    "habit": "walks sings paints reads knits swims fishes gardens travels cooks",
    "month": "January February March April May June July August September October November December",
}


def _notes(generator: np.random.Generator, group: int) -> Iterator[Record]:
    """The notes on one patient."""

    def one(kind: str) -> str:
        return str(generator.choice(WORDS_OF_NOTES[kind].split()))

    def name() -> str:
        return "".join(one(part) for part in ("onset", "vowel", "end", "onset", "vowel")).capitalize()

    patient, doctor, ward, age = (
        f"{name()} {name()}",
        name(),
        int(generator.integers(1, 30)),
        generator.integers(18, 95),
    )
    drug, habit, complaint = one("drug"), one("habit"), one("complaint")
    for _ in range(PER_GROUP):
        # What a patient has is usually what this patient always has.
        usual = generator.random(3) < 0.7
        about = drug if usual[0] else one("drug")
        again = complaint if usual[1] else one("complaint")
        sign, dose, month = one("sign"), int(generator.choice([5, 10, 20, 25, 40, 50, 80])), one("month")
        states, signs = (WORDS_OF_NOTES[kind].split() for kind in ("state", "sign"))
        state = states[(group + signs.index(sign)) % len(states)] if usual[2] else one("state")

        def note(words: tuple[str, str, str], *facts: Any, month: str = month) -> str:
            again, sign, state, about, dose = facts
            once_more, seen, still = words
            return (
                f"{patient}, {age}, ward {ward}, {month}: {again} {once_more}, {sign} {state}; {about} {dose} mg, "
                f"{seen} by {doctor}; {still} {habit}."
            )

        other = ("anew", "visited", "yet")
        wrong = [
            note(other, one("complaint"), one("sign"), one("state"), one("drug"), int(generator.integers(1, 9)) * 10)
            for _ in range(WRONG)
        ]
        facts = again, sign, state, about, dose
        yield Record("", note(("again", "seen", "still"), *facts), note(other, *facts), wrong)


def tokens_of(world: World, records: Sequence[Record]) -> Corpus:
    """Such records of a world as tokens of a vocabulary of their own."""
    form: Any = "question" if world.corpus == "tofu" else "text"

    def texts(answers: Sequence[str]) -> Texts:
        cut = tuple(" ".join(answer.split()[:MOST_WORDS]) for answer in answers)
        cut = tuple(f" {answer}" for answer in cut) if form == "question" else cut
        asked = tuple(" ".join(record.prompt.split()[:MOST_ASKED]) for record in records)
        return Texts(form, asked, cut, (b"",) * len(cut), "records")

    right = texts([record.text for record in records])
    sets = [right, texts([record.paraphrase for record in records])]
    sets += [texts([record.wrong[place] for record in records]) for place in range(WRONG)]
    tokenizer = word_tokenizer(sets, WORDS)
    inputs, paraphrased, *wrong = (part.inputs for part in sequences(sets, tokenizer))
    whole = tuple(f"{record.prompt}{answer}" for record, answer in zip(records, right.answers, strict=True))
    packed = np.array([len(zlib.compress(answer.encode())) for answer in right.answers])
    return Corpus(inputs, paraphrased, np.concatenate(wrong), whole, packed, tokenizer.vocabulary)


# The language models: trained side by side, and asked for a number of each record.

WIDTH, LAYERS, EPOCHS, BATCH, SIDE_BY_SIDE = 40, 2, 2, 8, 6
LOWEST, LEAST_VARIANCE = 0.2, 1e-6
SCORES = ("loss", "min_k", "min_k_plus_plus", "zlib", "truth_ratio")
TINY = 1e-10
"""Added to a denominator by open-unlearning."""


def learner_of(world: World, corpus: Corpus) -> LanguageModelLearner:
    steps = EPOCHS * (2 * PART * PER_GROUP // BATCH)
    rule = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, world.rate, steps // 10, steps), weight_decay=0.01)
    return language_model(
        partial(models.GPT, depth=LAYERS, width=WIDTH),
        corpus.inputs.shape[1],
        corpus.vocabulary,
        optimizer=rule,
        epochs=EPOCHS,
        batch_size=BATCH,
    )


def token_numbers(learner: LanguageModelLearner, params: Any, inputs: Any) -> Any:
    """Loss, Min-K% and Min-K%++ of each record, `[n, 3]`, as `jaxaudit.models.causal` has them."""

    def one(record: Any) -> Any:
        logits, _ = learner.net.apply(params.params, params.state, jnp.where(record < 0, ~record, record)[None], False)
        log_p, following = jax.nn.log_softmax(logits[0]), following_tokens(record[None])[0]
        counts = following >= 0
        of_token = jnp.take_along_axis(log_p, jnp.maximum(following, 0)[:, None], axis=1)[:, 0]
        p = jnp.exp(log_p)
        mean = (p * log_p).sum(-1)
        variance = (p * log_p**2).sum(-1) - mean**2
        normal = (of_token - mean) / jnp.sqrt(jnp.maximum(variance, LEAST_VARIANCE))
        count = counts.sum()
        # Both Min-K% leave out the token that ends an answer.
        inner = counts & (jnp.cumsum(counts) < count)
        most = jnp.maximum(1, jnp.floor(LOWEST * (count - 1) + 1e-6))

        def lowest(values: Any) -> Any:
            ordered = jnp.sort(jnp.where(inner, values, jnp.inf))
            return -jnp.sum(jnp.where(jnp.arange(len(ordered)) < most, ordered, 0)) / most

        loss = -jnp.sum(jnp.where(counts, of_token, 0)) / count
        return jnp.stack([loss, lowest(of_token), lowest(normal)])

    return jax.lax.map(one, inputs, batch_size=2)


@partial(jax.jit, static_argnums=0)
def _numbers(learner: LanguageModelLearner, params: Any, inputs: Any) -> Any:
    return jax.vmap(partial(token_numbers, learner), in_axes=(0, None))(params, inputs)


def asked(learner: LanguageModelLearner, params: Any, corpus: Corpus) -> np.ndarray:
    """The scores of all records under these models, `[models, records, SCORES]`."""
    numbers = np.asarray(_numbers(learner, params, jnp.asarray(corpus.inputs)), np.float64)
    right = log_probs_many(learner, params, corpus.paraphrased)[..., 0]
    wrong = log_probs_many(learner, params, corpus.wrong)[..., 0].reshape(len(right), WRONG, -1)
    ratios = truth_ratio(np.stack([right, *np.moveaxis(wrong, 1, 0)], axis=-1))
    columns = [numbers, (numbers[..., 0] / corpus.packed)[..., None], ratios[..., None]]
    return np.concatenate(columns, axis=-1).astype(np.float32)


def truth_ratio(log_likelihoods: np.ndarray) -> np.ndarray:
    """TOFU's truth ratio (equation 1), from mean log-likelihoods `[..., answers]` in nats, of the right one first."""
    likelihoods = np.asarray(log_likelihoods, np.float64)
    return np.exp(likelihoods[..., 1:].mean(axis=-1)) / (np.exp(likelihoods[..., 0]) + TINY)


def train(name: str, world: World, corpus: Corpus, folder: Path) -> None:
    """Trains the models of a world; their scores are kept in `folder`, as are finished chunks."""
    path = folder / f"{name}.npy"
    if path.exists():
        return
    learner, plan = learner_of(world, corpus), planned(world)
    keys = jax.random.split(jax.random.key(world.draw + 100 * (world.corpus == "notes")), len(plan))
    rows = np.repeat(np.stack([model.groups for model in plan]), PER_GROUP, axis=1)
    execution = Execution(models_per_batch=SIDE_BY_SIDE, checkpoints=folder / name)
    labels = np.zeros(len(corpus.inputs), np.int32)
    scores = fit_many(
        *(keys, rows, corpus.inputs, labels, learner),
        execution=execution,
        summarize=lambda params, _: asked(learner, params, corpus),
    )
    np.save(path, scores)
