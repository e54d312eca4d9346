"""Groups of records: read from every form, never shown, and refused where they were not dealt whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from jaxaudit.data.groups import LONGEST, Groups, as_groups, groups_file, load_groups
from jaxaudit.errors import InputError

VALUES = np.array(["anna", "bob", "anna", "7"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("set.npz", x=np.zeros((4, 2)), y=np.arange(4), patient=VALUES, wide=np.zeros((4, 2), int))
    np.savez("splits.npz", x_train=np.zeros((4, 2)), y_train=np.arange(4), x_test=np.zeros((4, 2)), patient=VALUES)
    np.save("g.npy", VALUES)
    np.save("bytes.npy", VALUES.astype("S")[:, None])
    np.save("floats.npy", np.zeros(4))
    np.save("objects.npy", np.array([{}, 1, 2, 3], object), allow_pickle=True)
    np.save("long.npy", np.array(["x" * (LONGEST + 1)] * 4))
    Path("plain.csv").write_text("anna\nbob\nanna\n7\n")
    Path("headed.csv").write_text("patient\nanna\nbob\n anna\n7\n")
    Path("several.csv").write_text("id,Group\n1,anna\n2,bob\n3,anna\n4,7\n")
    Path("unnamed.csv").write_text("id,other\n1,anna\n2,bob\n3,anna\n4,7\n")
    Path("empty.csv").write_text('group\nanna\n""\nanna\n7\n')
    Path("long.csv").write_text(f"group\n{'x' * (LONGEST + 1)}\nanna\nbob\n7\n")
    Path("groups.txt").write_text("anna\n")
    Path("table.csv").write_text(
        "age,patient,twice,twice,label\n1,anna,1,1,0\n2, bob,1,1,1\n3,anna ,1,1,0\n4,7,1,1,1\n"
    )
    columns = {"age": [1, 2, None, 4], "patient": [" anna", "bob", "anna", "7"]}
    parquet.write_table(pyarrow.table(columns), "table.parquet")
    arrays: dict[str, Any] = {"patient_train": VALUES, "test_patient": VALUES[::-1][:3], "short_train": VALUES[:3]}
    arrays |= {f"{name}_{split}": np.zeros(n) for split, n in (("train", 4), ("test", 3)) for name in "xy"}
    np.savez("named.npz", **arrays)
    return tmp_path


@pytest.mark.parametrize("text", ["g.npy", "bytes.npy", "plain.csv", "headed.csv", "several.csv", "patient"])
def test_every_form_gives_the_same_values(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert load_groups(text, "set.npz", 4, "query set").tolist() == VALUES.tolist()
    assert (groups_file(text) is None) == (text == "patient")
    with pytest.raises(InputError, match="values, but it has 6 records"):
        load_groups(text, "set.npz", 6, "holdout")
    if text == "patient":
        monkeypatch.chdir("/")
        assert load_groups(text, "set.npz", 4, "query set", folder).tolist() == VALUES.tolist()


@pytest.mark.parametrize(
    ("text", "data"),
    [
        *((text, "set.npz") for text in ("floats.npy", "objects.npy", "long.npy", "unnamed.csv", "empty.csv")),
        *((text, "set.npz") for text in ("long.csv", "groups.txt", "missing.npy", "missing", "wide")),
        # An array of three values beside the four records of which two are selected would be of others.
        *(("short", f"named.npz@{split}") for split in ("train", "train[:2]", "all")),
        ("patient_train", "named.npz@test"),
        ("patient_train", "named.npz@all"),
        *(("patient", f"set.npz@{split}") for split in ("test", "train[:9]", "train[")),
        ("patient", "splits.npz"),
        *(("patient", f"table.csv@{split}") for split in ("test", "train[:9]")),
        *((column, "table.csv") for column in ("twice", "Patient", "nobody")),
        *((column, "table.parquet") for column in ("age", "Patient", "nobody")),
        ("patient", "plain.csv"),
        ("patient", "mnist"),
    ],
)
def test_what_cannot_be_used_is_refused_without_a_value(folder: Path, text: str, data: str) -> None:
    with pytest.raises(InputError) as error:
        load_groups(text, data, 4, "query set")
    assert not any(value in str(error.value) for value in ("anna", "bob", "xxx"))


@pytest.mark.parametrize(
    ("key", "data", "places"),
    [
        ("patient", "set.npz@train", [0, 1, 2, 3]),
        ("patient", "set.npz@train[1:3]+train[:1]", [1, 2, 0]),
        ("patient", "table.csv@all[2:]", [2, 3]),
        ("patient", "table.parquet@all[2:]", [2, 3]),
        ("patient", "named.npz", [0, 1, 2, 3]),
        ("patient", "named.npz@test", [3, 2, 1]),
        ("test_patient", "named.npz@test[1:]", [2, 1]),
        ("patient", "named.npz@all", [0, 1, 2, 3, 3, 2, 1]),
        ("patient", "named.npz@test[:1]+train[2:]", [3, 2, 3]),
    ],
)
def test_a_name_in_the_sets_own_file_is_of_the_records_that_are_selected(
    folder: Path, key: str, data: str, places: list[int]
) -> None:
    assert load_groups(key, data, len(places), "query set").tolist() == VALUES[places].tolist()


def test_equal_values_are_equal_numbers_whatever_they_are_called() -> None:
    groups = as_groups(np.array([30, 10, 30]), np.array(["20", "5", "20"]))
    assert [each.tolist() for each in groups] == [[0, 1, 0], [2, 3, 2], []]
    assert groups.counts == (2, 2, 0)
    renamed = as_groups(np.array(["b", "a", "b"]), np.array(["z", "y", "z"]))
    assert renamed.content_hash == groups.content_hash
    others = as_groups(np.array([1, 1, 2]), np.array([3, 4, 3]))
    assert others.content_hash != groups.content_hash
    # The same numbers, dealt otherwise.
    moved = Groups(np.array([0, 1]), np.array([2, 3, 2]))
    assert moved.content_hash != Groups(np.array([0, 1, 2]), np.array([3, 2])).content_hash
    taken = groups.take(np.array([0, 2]), np.array([1]))
    assert [each.tolist() for each in taken] == [[0, 0], [1], []]


def test_groups_on_two_sides_are_refused_and_known_members_have_their_own() -> None:
    groups = as_groups(np.array([7, 7]), np.array([8]), np.array(["9", "11", "9"]))
    assert [each.tolist() for each in groups] == [[0, 0], [1], [2, 3, 2]]
    assert groups.counts == (1, 1, 2)
    assert groups.dealt.tolist() == [0, 0, 1]
    without = as_groups(np.array([7, 7]), np.array([8]))
    assert groups.content_hash != without.content_hash
    taken = groups.take(np.array([0]), np.array([0]), np.array([1]))
    assert [each.tolist() for each in taken] == [[0], [1], [2]]
    assert [each.tolist() for each in groups.take(np.array([1]), np.array([0]))] == [[0], [1], [2, 3, 2]]
    for query, holdout in ((9, 8), (7, 11)):
        with pytest.raises(InputError) as error:
            as_groups(np.array([query]), np.array([holdout]), np.array([9, 11]))
        assert not {"9", "11"} & set(str(error.value).split())
    with pytest.raises(InputError, match=r"^2 of 3 groups") as error:
        as_groups(np.array([4711, 4712, 4713]), np.array([4712, 4713, 4713]))
    assert "471" not in str(error.value)
