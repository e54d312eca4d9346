"""The three words of Python: a deal, outputs on its sets, and the verdict that the parts give one by one."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import jaxaudit as ja
from jaxaudit.errors import InputError

DIGITS = ja.load("digits").take(np.arange(800))
FLAT = ja.Examples(DIGITS.inputs.reshape(800, -1) / np.float32(255), DIGITS.labels, DIGITS.class_names, "digits")
DEAL = ja.deal(FLAT, holdout=0.3, members=0.4, seed=1)


def votes(*used: ja.Role) -> dict[str, np.ndarray]:
    """What a forest says that used these sets."""
    inputs = np.concatenate([DEAL.sets[role].inputs for role in used])
    labels = np.concatenate([DEAL.sets[role].labels for role in used])
    forest = RandomForestClassifier(random_state=1).fit(inputs, labels)
    return {role.value: forest.predict_proba(part.inputs) for role, part in DEAL.items()}


USED, UNUSED = votes(ja.Role.QUERY, ja.Role.MEMBERS), votes(ja.Role.MEMBERS)


def test_a_deal_has_each_record_once_and_keeps_copies_and_groups_together() -> None:
    again = ja.deal(FLAT, holdout=0.3, members=0.4, seed=1)
    assert [len(part) for _, part in DEAL.items()] == [240, 240, 320]
    assert all(np.array_equal(part.inputs, again.sets[role].inputs) for role, part in DEAL.items())
    hashes = np.concatenate([part.record_hashes for _, part in DEAL.items()])
    assert {*map(bytes, hashes)} == {*map(bytes, FLAT.record_hashes)}
    twice = FLAT.take(np.r_[np.arange(100), np.arange(100)])
    groups = np.repeat(np.arange(20), 10)
    parts = ja.deal(replace(twice, groups=groups), holdout=0.3, seed=2)
    assert parts.query.groups is not None
    assert parts.holdout.groups is not None
    assert not {*parts.query.groups.tolist()} & {*parts.holdout.groups.tolist()}
    assert not {*map(bytes, parts.query.record_hashes)} & {*map(bytes, parts.holdout.record_hashes)}


def test_the_verdict_is_that_of_the_parts() -> None:
    result = ja.ks(DEAL, {"first": USED, "anew": UNUSED})
    assert [target.verdict for target in result.targets] == ["not forgotten", "forgotten"]
    assert str(result).splitlines()[0].startswith("first: not forgotten. Use of the query set was detected")
    assert result._repr_html_().count("<p>") == 2
    key = jax.random.key(7)
    query, holdout, members = (
        ja.outputs_of(USED[role], FLAT.class_names, len(part), name="a") for role, part in DEAL.items()
    )
    target = ja.FileTarget(ja.Sets(query=query, holdout=holdout, members=members))
    shadows = ja.train_shadows(key, DEAL.query, targets=[target], holdout=DEAL.holdout, members=DEAL.members)
    parts = ja.judge(key, shadows, [target]).targets[0]
    assert ja.ks(DEAL, USED).targets[0].usage == parts.usage


def test_the_strongest_test_that_the_outputs_allow() -> None:
    two = {role: USED[role] for role in ("query", "holdout")}
    alone = ja.ks(DEAL, two).targets[0]
    assert (alone.method, alone.verdict, alone.usage[0].has_fraction) == ("holdout", "not forgotten", False)
    unused = {role: UNUSED[role] for role in two}
    assert ja.ks(DEAL, unused).targets[0].verdict == "inconclusive"
    assert ja.ks(DEAL, unused, before=two).targets[0].method == "deletion"


def test_outputs_before_and_after_that_were_exchanged_are_asked_for() -> None:
    """An honest deletion with the two files exchanged would read as none at all."""
    used, unused = ({role: each[role] for role in ("query", "holdout")} for each in (USED, UNUSED))
    exchanged, kept = (ja.ks(DEAL, used, before=before).targets[0].finding for before in (unused, used))
    assert exchanged.sentence.endswith("are the outputs before and after exchanged?")
    assert "exchanged" not in kept.sentence
    assert "exchanged" not in ja.ks(DEAL, unused, before=used).targets[0].finding.sentence


def test_a_folder_is_the_deal_that_was_saved(tmp_path: Path) -> None:
    groups = np.arange(800) // 2
    parts = ja.deal(replace(FLAT, groups=groups), holdout=0.3, members=0.4, seed=1)
    opened = ja.open_deal(parts.save(tmp_path / "deal"))
    for role, part in parts.items():
        assert opened.sets[role].content_hash == part.content_hash
        np.testing.assert_array_equal(opened.sets[role].groups, part.groups)
    with pytest.raises(InputError, match="cannot be written"):
        parts.save(tmp_path / "deal")


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "no outputs on the query set"),
        ({"query": USED["query"]}, "holdout"),
        ({"holdout": USED["holdout"]}, "no outputs on the query set"),
        ({**USED, "train": USED["query"]}, "outputs on 'train'"),
        ({**USED, "holdout": USED["holdout"][:-1]}, "239 rows"),
        ({**USED, "holdout": USED["query"]}, "same rows"),
        ({**USED, "query": USED["query"].argmax(axis=1)}, "labels"),
    ],
)
def test_outputs_that_do_not_fit_are_one_clear_line(outputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ja.ks(DEAL, outputs)


class Frame:
    """What tables of pandas and Polars have in common: columns by their names."""

    def __init__(self, values: dict[Any, np.ndarray]) -> None:
        self.values, self.columns = values, list(values)

    def __getitem__(self, name: Any) -> np.ndarray:
        return self.values[name]

    def __len__(self) -> int:
        return len(self.values[self.columns[0]])


def framed(outputs: np.ndarray, names: Any) -> Frame:
    return Frame(dict(zip(names, outputs.T, strict=True)))


def test_columns_of_a_table_are_read_by_their_names() -> None:
    """In whatever order: those of the holdout in another one would look like the use of the query set."""
    classes, turned = FLAT.class_names, np.arange(10)[::-1]
    frames = {role: framed(outputs, classes) for role, outputs in UNUSED.items()}
    frames["holdout"] = framed(UNUSED["holdout"][:, turned], np.array(classes)[turned])
    wanted = ja.ks(DEAL, UNUSED).targets[0]
    assert ja.ks(DEAL, frames).targets[0].usage == wanted.usage
    # pandas numbers the columns of an array: these have no names.
    numbered = {role: framed(outputs, range(10)) for role, outputs in UNUSED.items()}
    assert ja.ks(DEAL, numbered).targets[0].usage == wanted.usage
    for names in (["zero", *classes[1:]], [*classes[:9], "10"]):
        with pytest.raises(InputError, match=f"no column named '{'0' if names[0] == 'zero' else '9'}'"):
            ja.ks(DEAL, {**frames, "holdout": framed(UNUSED["holdout"], names)})


def test_numbered_columns_of_a_table_are_classes_in_their_order() -> None:
    """Whatever the classes are called: sorted as texts, class 10 comes third, and is no column 10."""
    names, rows = sorted(map(str, range(12))), np.eye(12, dtype=np.float32)[[2, 3]] * 0.5 + 0.5 / 12
    read = ja.outputs_of(framed(rows, range(12)), names, 2, name="numbered")
    np.testing.assert_array_equal(read.probabilities, rows)
    read = ja.outputs_of(framed(rows[:, ::-1], names[::-1]), names, 2, name="named")
    np.testing.assert_array_equal(read.probabilities, rows)


def test_outputs_that_were_read_are_taken_as_they_are() -> None:
    read = {str(role): ja.outputs_of(UNUSED[role], 10, len(part), name=role) for role, part in DEAL.items()}
    assert ja.ks(DEAL, read).targets[0].usage == ja.ks(DEAL, UNUSED).targets[0].usage


@pytest.mark.parametrize("value", [USED["query"], "model", None])
def test_what_is_no_mapping_and_what_is_no_examples_is_one_clear_line(value: Any) -> None:
    with pytest.raises(InputError, match="a mapping is needed"):
        inspect.unwrap(ja.ks)(DEAL, value)
    with pytest.raises(InputError, match="Examples are needed"):
        inspect.unwrap(ja.deal)(value, holdout=0.3, seed=1)


def test_sets_of_other_classes_or_columns_are_no_deal(tmp_path: Path) -> None:
    """Matched by place, the words of one language would be those of another."""
    for name, words in {"query": ("hoch", "mittel", "niedrig"), "holdout": ("high", "low", "medium")}.items():
        rows = [f"{37 * row % 101 / 4},{row % 7},{words[row % 3]}" for row in range(60)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,Klasse", *rows, ""]))
    with pytest.raises(InputError, match="does not name"):
        ja.open_deal(tmp_path, label="Klasse")
    english = (tmp_path / "holdout.csv").read_text()
    for word, same in {"high": "hoch", "medium": "mittel", "low": "niedrig"}.items():
        english = english.replace(word, same)
    (tmp_path / "holdout.csv").write_text(english.replace("a,b,", "a,c,"))
    with pytest.raises(InputError, match="lacks the columns 'b'"):
        ja.open_deal(tmp_path, label="Klasse")


def test_a_set_that_was_not_dealt_is_said() -> None:
    with pytest.raises(InputError, match="no members"):
        _ = ja.deal(FLAT, holdout=0.5, seed=3).members
