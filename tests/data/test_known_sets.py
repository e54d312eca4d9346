"""Sets known by name: as small copies, and where JAXAUDIT_DATA names their folder as their authors describe them."""

import gzip
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.small_sets import write_archive

from jaxaudit.data import MISSING, Table, category_counts, load_table, one_hot
from jaxaudit.errors import InputError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the files of both sets lie, in a data directory."""
    monkeypatch.setenv("JAXAUDIT_DATA", str(tmp_path))
    for name in ("adult", "location"):
        (tmp_path / name).mkdir()
    return tmp_path


TGZ = "location/dataset_location.tgz"
FIRST = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K"
)
SECOND = "50, ?, 83311, 9th, 5, Divorced, ?, Husband, Black, Female, 0, 7, 13, ?, >50K"


def test_adult_train(folder):
    (folder / "adult/adult.data").write_text(f"{FIRST}\n{SECOND}\n\n")
    table = load_table("adult")
    assert [column.name for column in table.columns] == [
        *("age", "workclass", "education", "education-num", "marital-status", "occupation", "relationship", "race"),
        *("sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
    ]
    columns = [column.categories for column in table.columns]
    rows = [
        [names[int(number)] if names else number for names, number in zip(columns, row, strict=True)]
        for row in table.values
    ]
    words = FIRST.split(", ")
    assert rows[0] == [39, words[1], "Bachelors", 13, *words[5:10], 2174, 0, 40, "United-States"]
    assert rows[1] == [50, MISSING, "9th", 5, "Divorced", MISSING, "Husband", "Black", "Female", 0, 7, 13, MISSING]
    assert (table.labels.tolist(), table.class_names) == ([0, 1], ("<=50K", ">50K"))
    assert category_counts(table) == (0, 9, 16, 0, 7, 15, 6, 5, 2, 0, 0, 0, 42)
    # 5 numbers, 1 input for the two sexes, 100 for the other categories.
    assert one_hot(table).inputs.shape == (2, 106)


def test_adult_test_has_a_comment_and_full_stops(folder):
    content = f"|1x3 Cross validator\n{FIRST}.\n{SECOND}.\n\n".encode()
    (folder / "adult/adult.test.gz").write_bytes(gzip.compress(content))
    table = load_table("adult@test")
    assert table.labels.tolist() == [0, 1]
    (folder / "adult/adult.data").write_text(f"{FIRST}\n{SECOND}")
    assert load_table("adult").content_hash == table.content_hash


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], r"no file of at most 64 MiB; is it dataset_location\.tgz"),
        ([("a", b"1,0,2\n2,0,1\n")], "another number than 0 and 1"),
        *(
            ([("a", rows)], "table of whole numbers .(could not convert string|the number)")
            for rows in (b"1,0,x\n2,0,1\n", b"1,0,\n2,0,\n", b"1,0\n2,0,1\n", b"," * 2**21)
        ),
        ([("a", b"")], "there are no labels"),
        ([("a", b"1\n2\n")], "needs at least one beside the label"),
        (f"{FIRST}\n{FIRST.replace('White', 'Green')}", "race has a text that is not"),
        (FIRST.replace("<=50K", "50K"), "income has a text"),
        (FIRST.replace("2174", "many"), "capital-gain"),
    ],
)
def test_refused(folder, files, message):
    """Location's archive of these files; or else lines of Adult."""
    if isinstance(files, str):
        (folder / "adult/adult.data").write_text(f"{files}\n")
    else:
        write_archive(folder / TGZ, *files)
    with pytest.raises(InputError, match=message):
        load_table("adult" if isinstance(files, str) else "location")


def test_location(folder):
    write_archive(folder / TGZ, ("bangkok", b'"2",0,1,1\n"10",1,0,1\n"2",0,0,0\n'), ("other", b"x"))
    table = load_table("location")
    assert table.values.tolist() == [[0, 1, 1], [1, 0, 1], [0, 0, 0]]
    assert table.values.dtype == np.uint8
    assert [(column.name, column.categories) for column in table.columns] == [
        (f"place {place}", ("no", "yes")) for place in (1, 2, 3)
    ]
    assert (table.labels.tolist(), table.class_names) == ([0, 1, 0], ("2", "10"))
    assert one_hot(table).inputs.tolist() == table.values.tolist()
    assert os.listdir(folder / "location") == [TGZ.partition("/")[2]]


@pytest.mark.parametrize("claimed", [3 * 10**9, 10**15])
def test_a_sparse_file_in_an_archive_is_not_filled(folder, claimed):
    member = tarfile.TarInfo("a")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"\x80" + claimed.to_bytes(11, "big")  # how long the file is with its holes
    header[148:156] = b"%06o\0 " % sum(header[:148] + b" " * 8 + header[156:])
    (folder / TGZ).write_bytes(gzip.compress(header + bytes(1024)))
    with pytest.raises(InputError, match="no file of at most 64 MiB"):
        load_table("location")


def test_location_is_bounded(folder, monkeypatch):
    path = write_archive(folder / TGZ, ("a", b"1,0\n2,1\n" * 50_000))
    assert path.stat().st_size < 5_000
    assert len(load_table("location")) == 100_000
    with monkeypatch.context() as patch:
        patch.setattr("jaxaudit.data.known_sets.LARGEST_FILE", 100_000)
        with pytest.raises(InputError, match="more than the"):
            load_table("location")
    # A file that says it is larger than the archive.
    path = write_archive(folder / TGZ, ("a", b"1,0\n2,1\n" * 500))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:2048]))
    with pytest.raises(InputError, match=r"location.tgz: cannot be read as a tar archive .unexpected end of data"):
        load_table("location")
    path.write_bytes(b"no archive" * 100)
    with pytest.raises(InputError, match=r"location.tgz: cannot be read as a tar archive"):
        load_table("location")


def test_embedded_tables_are_those_of_scikit_learn():
    from sklearn.datasets import load_breast_cancer, load_wine

    pairs: list[tuple[Table, Any]] = [
        (load_table("breast-cancer"), load_breast_cancer()),
        (load_table("wine"), load_wine()),
    ]
    for table, bunch in pairs:
        assert np.array_equal(table.values, bunch.data)
        assert np.array_equal(table.labels, bunch.target)
        assert table.class_names == tuple(bunch.target_names)
        assert [column.name for column in table.columns] == list(bunch.feature_names)
        assert not any(category_counts(table))


ADULT = (0, 9, 16, 0, 7, 15, 6, 5, 2, 0, 0, 0, 42)


DATA = Path(os.environ.get("JAXAUDIT_DATA", "/nonexistent"))


def real(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"JAXAUDIT_DATA names no folder of real data sets with {name}")
    return path


@pytest.mark.parametrize(
    ("name", "classes", "categories"),
    [
        ("adult@train", [24_720, 7_841], ADULT),
        ("adult@all", [37_155, 11_687], ADULT),
    ],
)
def test_tables(monkeypatch, name, classes, categories):
    real(name.partition("@")[0])
    monkeypatch.setenv("JAXAUDIT_DATA", str(DATA))
    table = load_table(name)
    assert np.bincount(table.labels).tolist() == classes
    assert category_counts(table) == categories
    assert (np.ptp(table.values, axis=0) > 0).all()
    if name == "adult@all":
        named = [column.categories or () for column in table.columns]
        missing = table.values == [each.index(MISSING) if MISSING in each else -1 for each in named]
        # adult.names: 48,842 records, 45,222 without unknown values.
        assert missing.sum(axis=0).tolist() == [0, 2_799, 0, 0, 0, 2_809, 0, 0, 0, 0, 0, 0, 857]
        assert (~missing.any(axis=1)).sum() == 45_222


def test_the_real_location(monkeypatch):
    real("location")
    monkeypatch.setenv("JAXAUDIT_DATA", str(DATA))
    table = load_table("location")
    assert table.values.shape == (5_010, 446)
    assert np.bincount(table.labels).min() > 90
    assert table.class_names == tuple(map(str, range(1, 31)))
