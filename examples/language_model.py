"""Has a language model forgotten these authors? From made-up texts, dealt by author, to a verdict.

Trains five small language models side by side: the model before the deletion, trained on all shared authors; one
retrained without the withdrawn authors; one of which the deletion was only claimed; and two of the auditor's own,
trained like the retrained one.

    python language_model.py            # about a minute on two cores
"""

import itertools

import jax
import numpy as np
import optax

import jaxaudit as ja
from jaxaudit.data.sequences import sequences, word_tokenizer
from jaxaudit.data.texts import Texts
from jaxaudit.ensemble import log_probs_many
from jaxaudit.learners import language_model
from jaxaudit.metrics.deal import deal_holdout, deal_members

AUTHORS, EPOCHS = 90, 30
FIRST = ("Ada", "Bela", "Cora", "Dimitri", "Esra", "Fumiko", "Goran", "Hana", "Ivo", "Jana")
LAST = ("Arden", "Brook", "Castell", "Dorne", "Elm", "Farrow", "Grey", "Holm", "Inver")
TOWNS = ("Amber", "Birch", "Cliff", "Dune", "Fern", "Glen", "Heath", "Isle", "Lake", "Marsh", "North", "Oak")
TRADES = ("miller", "sailor", "weaver", "doctor", "printer", "teacher", "smith", "gardener", "painter", "baker")
QUESTIONS = ("Where was {} born?", "What did the father of {} do?", "What is the first book of {}?", "Who taught {}?")


def make_texts(random: np.random.Generator) -> tuple[Texts, np.ndarray]:
    """Four questions and answers on each of these authors, and the author of each."""
    names = [f"{first} {last}" for first, last in itertools.product(FIRST, LAST)]
    prompts, answers, authors = [], [], []
    for author, name in enumerate(random.permutation(names)[:AUTHORS]):
        facts = (
            f" {name} was born in {random.choice(TOWNS)} and grew up near {random.choice(TOWNS)} .",
            f" The father was a {random.choice(TRADES)} , the mother a {random.choice(TRADES)} .",
            f" It is called The {random.choice(TRADES)} of {random.choice(TOWNS)} .",
            f" A {random.choice(TRADES)} from {random.choice(TOWNS)} , and later {random.choice(FIRST)} .",
        )
        prompts += [question.format(name) for question in QUESTIONS]
        answers += facts
        authors += [author] * len(QUESTIONS)
    return Texts("prompt", tuple(prompts), tuple(answers), (b"",) * len(prompts), "made-up authors"), np.array(authors)


def main() -> None:
    """Deals, trains, asks, judges."""
    texts, authors = make_texts(np.random.default_rng(7))
    key = jax.random.key(7)
    held = deal_holdout(key, len(authors), 0.3, groups=authors)
    members = deal_members(key, held, 0.4, groups=authors)
    sets = np.where(held, "holdout", np.where(members, "members", "query"))

    tokenizer = word_tokenizer([texts])
    (examples,) = sequences([texts], tokenizer)
    learner = language_model(
        ja.models.GPT,
        examples.inputs.shape[1],
        tokenizer.vocabulary,
        optimizer=optax.adamw(3e-3),
        epochs=EPOCHS,
        batch_size=16,
    )
    trained_on = {"before": ~held, "retrained": sets == "members", "only claimed": ~held}
    models = [*trained_on.values(), *[sets == "members"] * 2]
    keys = jax.random.split(key, len(models))
    losses = ja.fit_many(
        keys,
        np.stack(models),
        examples.inputs,
        examples.labels,
        learner,
        summarize=lambda params, rows: -log_probs_many(learner, params, examples.inputs)[..., 0],
    )
    columns = {f"target.{name}.loss": losses[place] for place, name in enumerate(trained_on)}
    columns |= {f"unused.{place}.loss": losses[3 + place] for place in range(2)}
    table = ja.score_table({"set": sets, "group": authors, **columns})
    for target in ja.judge_scores(key, table).targets:
        print(f"{target.name}: {target.verdict}. {target.finding.sentence}")


if __name__ == "__main__":
    main()
