"""The user's own words stand in every text of a page, and nothing else changes."""

from typing import NamedTuple

import pytest

from jaxaudit.errors import InputError
from jaxaudit.report import in_words, parse_name


class Card(NamedTuple):
    about: str
    lines: tuple[str, ...]
    number: float


def test_names_stand_in_all_texts_and_numbers_stay() -> None:
    card = Card("out.csv", ("The target used the query set, not the holdout's.", "the query-set"), 0.5)
    names = ["query=our 3 files", "target=model X"]
    assert in_words(card, names, "out.csv") == Card(
        "model X", ("Model X used our 3 files, not the holdout's.", "the query-set"), 0.5
    )
    assert in_words(card, []) is card


@pytest.mark.parametrize("text", ["train=x", "query", "query=", f"query={'x' * 101}", "target=a\nb"])
def test_a_name_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="`name`"):
        parse_name(text)
