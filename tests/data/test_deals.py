"""What a deal left: sets by role, the record of the deal, and a blind challenge with its key."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import jaxaudit as ja
from jaxaudit.data import (
    Key,
    Role,
    answers_of,
    check_files,
    dealt_side,
    file_hash,
    key_as_json,
    load_answers,
    read_key,
)
from jaxaudit.errors import InputError

ROWS: dict[Any, list[int]] = {"query": [5, 0, 2], "holdout": [1, 4], "members": [3]}
SALT = "ab" * 32


def key_of(**changes: Any) -> Key:
    return Key(**{"salt": SALT, "seed": 7, "groups": False, "files": {}, "rows": ROWS, **changes})


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The folder of a key with one file of each set."""
    for role in ROWS:
        (tmp_path / f"{role}.npz").write_bytes(role.encode())
    files = {f"{role}.npz": file_hash(tmp_path / f"{role}.npz") for role in ROWS}
    (tmp_path / "key.json").write_bytes(key_as_json(key_of(files=files)))
    return tmp_path


def probabilities(records: int) -> np.ndarray:
    drawn = np.random.default_rng(1).random((records, 3))
    return drawn / drawn.sum(axis=1, keepdims=True)


def test_the_commitment_is_what_the_key_says_it_is(written: Path) -> None:
    """By another library's JSON, as `about` describes it."""
    fields = json.loads((written / "key.json").read_text())
    commitment = fields.pop("commitment")
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(canonical.encode()).hexdigest() == commitment == read_key(written / "key.json").committed
    assert all(word in fields["about"] for word in ("SHA-256", "`commitment`", "sorted", "no blanks"))


def test_the_commitment_depends_on_everything() -> None:
    other = {**ROWS, "query": [0, 5, 2]}
    keys = [key_of(), key_of(salt="cd" * 32), key_of(seed=8), key_of(groups=True), key_of(rows=other)]
    keys.append(key_of(files={"query.npz": SALT}))
    assert len({key.committed for key in keys}) == len(keys)


CHANGED, NONE = "does not match its commitment, so it was changed", "is not the key of a challenge .*blind deal"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({"seed": 8}, CHANGED), ({"groups": True}, CHANGED), ({"salt": "cd" * 32}, CHANGED)),
        *(({"commitment": value}, CHANGED) for value in ("0" * 64, None)),
        *(({"rows": {**ROWS, "members": rows}}, NONE) for rows in ([5], [6], [-1], [10**30], [], [[3]])),
        *(({"rows": rows}, NONE) for rows in ({**ROWS, "others": [6]}, {"query": [0]})),
        *(({"schema": "jaxaudit.challenge/2"}, NONE), ({"salt": "short"}, NONE), ({"seed": "7"}, NONE)),
        *(({"files": {"../query.npz": "no hash"}}, NONE), ({"further": 1}, NONE)),
    ],
)
def test_another_key_is_refused(written: Path, changes: dict[str, Any], message: str) -> None:
    text = (written / "key.json").read_text()
    (written / "key.json").write_text(json.dumps(json.loads(text) | changes))
    with pytest.raises(InputError, match=message):
        read_key(written / "key.json")
    (written / "key.json").write_text(text.replace('"seed":', '"seed":1,"seed":', 1))
    with pytest.raises(InputError, match="twice"):
        read_key(written / "key.json")


def test_files_must_be_those_of_the_key(written: Path) -> None:
    key = read_key(written / "key.json")
    check_files(key, written)
    (written / "challenge.csv").write_text("another challenge")
    with pytest.raises(InputError, match=r"challenge\.csv: is not the file that key\.json was written with"):
        check_files(key, written)
    (written / "challenge.csv").unlink()
    (written / "members.npz").write_bytes(b"others")
    with pytest.raises(InputError, match=r"members\.npz: is not the file"):
        check_files(key, written)
    (written / "members.npz").unlink()
    with pytest.raises(InputError, match=r"members\.npz: is missing"):
        check_files(key, written)


def test_outputs_are_split_as_the_rows_say(tmp_path: Path) -> None:
    key, values, path = key_of(), probabilities(6), tmp_path / "outputs.npy"
    np.save(path, values)
    answers = load_answers(path, key, 3)
    for role, rows in ROWS.items():
        np.testing.assert_allclose(answers_of(answers, key, Role(role)).values, values[rows], rtol=1e-6)


def write_named(path: Path, form: str, names: list[str], values: np.ndarray) -> Path:
    """A file of outputs that names its records, in one of many forms."""
    kind, _, how = form.partition(" ")
    path = path / f"outputs.{kind}"
    if kind == "npz":
        further = {"class_names": np.array(["a", "b", "c"]), "y": np.array(["a"] * len(names))}
        arrays: dict[str, Any] = {how or "record": np.array(names), "probabilities": values, **further}
        np.savez(path, **arrays)
    elif kind == "parquet":
        columns: dict[str, Any] = {name: values[:, place] for place, name in enumerate("abc")}
        record = pa.array(names).dictionary_encode()
        made = {"record": record, **columns} if how == "encoded" else {**columns, how: record}
        parquet.write_table(pa.table(made), path)
    else:
        header = {"": "record,a,b,c", "none": None, "last": "a,b,c,record"}.get(how, f"{how},a,b,c")
        named = [[name, *row] if how != "last" else [*row, name] for name, row in zip(names, values, strict=True)]
        path.write_text("\n".join([*filter(None, [header]), *(",".join(map(str, row)) for row in named), ""]))
    return path


FORMS = ("npz", "csv", "csv Name", "csv none", "csv last", "parquet encoded", "parquet __index_level_0__")


@pytest.mark.parametrize("form", FORMS)
def test_names_of_records_order_the_rows(tmp_path: Path, form: str) -> None:
    """Whatever the format, the column's name and its place."""
    key, values = key_of(), probabilities(6)
    order = np.random.default_rng(2).permutation(6)
    own = [key.names[row] for row in order]
    answers = load_answers(write_named(tmp_path, form, own, values[order]), key, ["a", "b", "c"])
    np.testing.assert_array_equal(answers.values, values)
    assert any("put in order by the names" in note for note in answers.reading)
    # Nor are the classes that a model tells names of records.
    for wrong in ([own[0], *own[:5]], [own[0], "", *own[2:]], [*own[:5], f"{own[5]}x"], list("abcabc")):
        with pytest.raises(InputError, match=r"not those of the challenge, each once") as error:
            load_answers(write_named(tmp_path, form, wrong, values[order]), key, ["a", "b", "c"])
        assert own[0] not in str(error.value)


HASH = hashlib.sha256(b"records").hexdigest()


@pytest.fixture
def side(tmp_path: Path) -> Path:
    (tmp_path / "query.jsonl").write_bytes(b"records")
    return tmp_path / "query.jsonl"


def test_a_side_is_known_by_its_hash(side: Path):
    record = {"query": {"sha256": "0" * 64}, "holdout": {"sha256": HASH}, "by_groups": True}
    side.with_name("deal.json").write_text(json.dumps(record))
    found = dealt_side(side)
    assert found is not None
    assert (found.name, found.has_groups) == ("holdout", True)
    assert found.deal == hashlib.sha256(side.with_name("deal.json").read_bytes()).hexdigest()
    side.write_bytes(b"others")
    assert dealt_side(side) is None


RECORD = json.dumps({"query": {"sha256": HASH}}).encode()
DAMAGED = {
    "nothing": b"",
    "no UTF-8": RECORD.replace(b"query", b"\xff"),
    "half a surrogate": RECORD.replace(HASH[:4].encode(), b"\\ud800"),
    "another kind": b'{"query": 7}',
    "nested": b'{"more": ' + b"[" * 100_000,
    "larger than a record": RECORD + b" " * (1 << 20),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A deal with its record."""
    folder = ja.deal(ja.load("digits").take(np.arange(300)), holdout=0.3, members=0.4, seed=1).save(tmp_path / "deal")
    record = {path.stem: {"file": path.name, "sha256": file_hash(path)} for path in folder.iterdir()}
    (folder / "deal.json").write_text(json.dumps(record))
    return folder


def test_sets_that_changed_their_names_or_their_records_are_refused(folder: Path):
    query, holdout = folder / "query.npz", folder / "holdout.npz"
    for name, content in ((query, holdout.read_bytes()), (query, b"others")):
        kept = name.read_bytes()
        name.write_bytes(content)
        with pytest.raises(InputError):
            ja.open_deal(folder)
        name.write_bytes(kept)
    assert [*map(str, ja.open_deal(folder).sets)] == ["query", "holdout", "members"]


@pytest.mark.parametrize("name", [*DAMAGED, "a folder"])
def test_a_damaged_record_says_nothing_and_its_folder_is_no_deal(name: str, folder: Path):
    if name in DAMAGED:
        (folder / "deal.json").write_bytes(DAMAGED[name])
    else:
        (folder / "deal.json").unlink()
        (folder / "deal.json").mkdir()
    assert dealt_side(folder / "query.npz") is None
    with pytest.raises(InputError, match=r"deal\.json"):
        ja.open_deal(folder)
