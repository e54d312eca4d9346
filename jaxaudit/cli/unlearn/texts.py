"""Reads texts for `jaxaudit unlearn`: training and test records, those to forget, other answers to their questions."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxaudit.cli.own_model import OF_TEXTS
from jaxaudit.cli.parsers import TEXTS, is_texts, parse_tokens
from jaxaudit.cli.unlearn.command import UnlearnData, UnlearnOptions
from jaxaudit.data import Examples, concatenate
from jaxaudit.data.paths import expanded
from jaxaudit.data.sequences import BYTES, sequences, word_tokenizer
from jaxaudit.data.texts import Texts, other_answers, read_texts
from jaxaudit.errors import InputError


def check_kind(options: UnlearnOptions) -> None:
    """Rejects options of texts where records have classes, and the other way round.

    Raises:
        InputError: there are any, or texts lack one that they need.
    """
    data, usual = options.data, UnlearnData()
    if not is_texts(data.data or ""):
        given = {"--forget": data.forget, "--tokens": options.model.tokens, "--rmu-layer": options.audit.rmu_layer}
        named = [flag for flag, value in given.items() if value is not None]
        if named:
            raise InputError(f"{', '.join(named)}: for texts, and --data {data.data} is none ({', '.join(TEXTS)}).")
        return
    of_classes = ("class_name", "per_class", "fraction", "image_size", "gray")
    wrong = [name for name in of_classes if getattr(data, name) != getattr(usual, name)]
    flags = {"class_name": "--class", "gray": "--color"}
    if wrong:
        named = ", ".join(flags.get(name, f"--{name.replace('_', '-')}") for name in wrong)
        raise InputError(f"{named}: for records of classes, and texts have none; leave it out.")
    if options.audit.nonmembers:
        raise InputError("--nonmembers: attack networks learn from outputs of classes, and texts have none.")
    for flag, value in (("--forget", data.forget), ("--test-data", data.test_data)):
        if value is None:
            raise InputError(f"{flag} is missing: texts need it.")
    if options.recipe.optimizer == "sgd":
        raise InputError(
            "--optimizer sgd hardly trains a language model; give --optimizer adamw --learning-rate 0.001, and a "
            f"number of --epochs, such as 10, for a small one such as {OF_TEXTS}."
        )


def read_text_sets(data: UnlearnData, tokens: str | None) -> tuple[Examples, Examples, np.ndarray, Any]:
    """The training and the test records, which training records to forget, and other answers to the questions of these.

    Other answers are `int32[forgotten, answers, length]`, a paraphrase first; None where the lines have none.

    Raises:
        InputError: a file cannot be read, or there is nothing to forget, or nothing else.
    """
    whole, test = (_read(name or "") for name in (data.data, data.test_data))
    named = data.forget or ""
    if is_texts(named):
        removed = _read(named)
    else:
        key, equals, value = named.partition("=")
        values = whole.column(key)
        if not equals or values is None:
            raise InputError(
                f"--forget must be a file of texts ({', '.join(TEXTS)}), or KEY=VALUE with a key of the lines of "
                "--data, such as author=7."
            )
        rows = [row for row, each in enumerate(values) if str(each) == value]
        if not rows:
            raise InputError(f"--forget: no line of {whole.source} has this value at {key!r}; is it right?")
        removed = whole.take(rows)
    more = other_answers(removed)
    sets = [whole, removed, test, *([] if more is None else [more])]
    words, gone = parse_tokens(tokens or "bytes"), {*zip(removed.prompts, removed.answers, strict=True)}
    there = [each in gone for each in zip(whole.prompts, whole.answers, strict=True)]
    rest = np.flatnonzero(~np.array(there))
    # Of all training records, those to forget among them, and no other: what is forgotten changes no token.
    known = {*zip(whole.prompts, whole.answers, strict=True)}
    new = [row for row, each in enumerate(zip(removed.prompts, removed.answers, strict=True)) if each not in known]
    counted = [whole, removed.take(new), test]
    every, forgotten, tested, *others = sequences(sets, BYTES if words is None else word_tokenizer(counted, words))
    if not len(rest):
        raise InputError("--forget is all of --data, and no record would remain; name fewer texts.")
    train = concatenate([every.take(rest), forgotten], every.name)
    forget = np.arange(len(train)) >= len(rest)
    answers = others[0].inputs.reshape(len(forgotten), -1, others[0].inputs.shape[1]) if others else None
    return train, tested, forget, answers


def _read(name: str) -> Texts:
    if not is_texts(name):
        raise InputError(f"{name}: is no file of texts ({', '.join(TEXTS)}), as --data is; give all sets as texts.")
    return read_texts(expanded(Path(name)))
