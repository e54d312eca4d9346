"""Adult, Location and the census: small files of the same format, the real ones where they are, and what is refused."""

import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxaudit.data.formats.bounded import open_bounded
from jaxaudit.data.sets.adult import ATTRIBUTES, adult, adult_splits
from jaxaudit.data.sets.census import MARITAL, RACES, census
from jaxaudit.data.sets.embedded_tables import breast_cancer, wine
from jaxaudit.data.sets.location import location
from jaxaudit.data.tables.resolve import load_table
from jaxaudit.data.tables.table import MISSING, Table, category_counts, one_hot
from jaxaudit.errors import InputError

FIRST = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K"
)
SECOND = "50, ?, 83311, 9th, 5, Divorced, ?, Husband, Black, Female, 0, 7, 13, ?, >50K"


def test_adult_train(tmp_path):
    (tmp_path / "adult.data").write_text(f"{FIRST}\n{SECOND}\n\n")
    table = adult(tmp_path, "train")
    names = [column.name for column in table.columns]
    assert names == [name for name in ATTRIBUTES if name != "fnlwgt"]
    assert len(names) == 13
    rows = [
        [
            number if column.categories is None else column.categories[int(number)]
            for column, number in zip(table.columns, row, strict=True)
        ]
        for row in table.values
    ]
    words = FIRST.split(", ")
    assert rows[0] == [39, words[1], "Bachelors", 13, *words[5:10], 2174, 0, 40, "United-States"]
    assert rows[1] == [50, MISSING, "9th", 5, "Divorced", MISSING, "Husband", "Black", "Female", 0, 7, 13, MISSING]
    assert (table.labels.tolist(), table.class_names) == ([0, 1], ("<=50K", ">50K"))
    assert category_counts(table) == (0, 9, 16, 0, 7, 15, 6, 5, 2, 0, 0, 0, 42)
    # 5 numbers, 1 input for the two sexes, 100 for the other categories.
    assert one_hot(table).inputs.shape == (2, 106)


def test_adult_test_has_a_comment_and_full_stops(tmp_path):
    content = f"|1x3 Cross validator\n{FIRST}.\n{SECOND}.\n\n".encode()
    (tmp_path / "adult.test.gz").write_bytes(gzip.compress(content))
    assert adult_splits(tmp_path) == ("test",)
    table = adult(tmp_path, "test")
    assert table.labels.tolist() == [0, 1]
    (tmp_path / "adult.data").write_text(f"{FIRST}\n{SECOND}")
    assert adult_splits(tmp_path) == ("train", "test")
    assert adult(tmp_path, "train").content_hash == table.content_hash


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("|only a comment\n", "adult.data: there are no records. Is the file empty"),
        (f"{FIRST}, more\n", "adult.data: is not UCI's adult.data .*Expected 15 columns, got 16"),
        (f"{FIRST}\n{FIRST.replace('White', 'Green')}\n", "a text for race that is"),
        (FIRST.replace("<=50K", "50K") + "\n", "a text for income"),
        (FIRST.replace("2174", "many") + "\n", "capital-gain"),
    ],
)
def test_adult_refuses(tmp_path, content, message):
    (tmp_path / "adult.data").write_text(content)
    with pytest.raises(InputError, match=message):
        adult(tmp_path, "train")


def test_adult_without_its_file(tmp_path):
    with pytest.raises(InputError, match=r"no adult\.test or adult\.test\.gz; put UCI's file there"):
        adult(tmp_path, "test")


def write_archive(path, *files, folder=True):
    with tarfile.open(path, "w:gz") as archive:
        if folder:
            directory = tarfile.TarInfo("data")
            directory.type = tarfile.DIRTYPE
            archive.addfile(directory)
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_location(tmp_path):
    path = write_archive(tmp_path / "a.tgz", ("bangkok", b'"2",0,1,1\n"10",1,0,1\n"2",0,0,0\n'), ("other", b"x"))
    table = location(path)
    assert table.values.tolist() == [[0, 1, 1], [1, 0, 1], [0, 0, 0]]
    assert table.values.dtype == np.uint8
    assert [(column.name, column.categories) for column in table.columns] == [
        (f"place {place}", ("no", "yes")) for place in (1, 2, 3)
    ]
    assert (table.labels.tolist(), table.class_names) == ([0, 1, 0], ("2", "10"))
    assert one_hot(table).inputs.tolist() == table.values.tolist()
    assert os.listdir(tmp_path) == ["a.tgz"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], r"no file; is it dataset_location\.tgz"),
        ([("a", b"1,0,2\n2,0,1\n")], "record 1 is neither 0 nor 1"),
        ([("a", b"1,0,\n2,0,\n")], "record 1 is neither 0 nor 1"),
        ([("a", b"1,0,x\n2,0,1\n")], "table of whole numbers"),
        ([("a", b"1,0\n2,0,1\n")], "table of whole numbers"),
        ([("a", b"")], "table of whole numbers"),
        ([("a", b"1\n2\n")], "there is no column"),
    ],
)
def test_location_refuses(tmp_path, files, message):
    with pytest.raises(InputError, match=message):
        location(write_archive(tmp_path / "a.tgz", *files))


@pytest.mark.parametrize("claimed", [3 * 10**9, 10**15])
def test_a_sparse_file_in_an_archive_is_not_filled(tmp_path, claimed):
    member = tarfile.TarInfo("a")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"\x80" + claimed.to_bytes(11, "big")  # how long the file is with its holes
    header[148:156] = b"%06o\0 " % sum(header[:148] + b" " * 8 + header[156:])
    (tmp_path / "a.tgz").write_bytes(gzip.compress(header + bytes(1024)))
    with pytest.raises(InputError, match="has holes"):
        location(tmp_path / "a.tgz")


def test_a_line_of_commas_is_not_parsed(tmp_path):
    with pytest.raises(InputError, match="more than 10,000 columns"):
        location(write_archive(tmp_path / "a.tgz", ("a", b"," * 2**21)))


def test_location_is_bounded(tmp_path):
    path = write_archive(tmp_path / "a.tgz", ("a", b"1,0\n2,1\n" * 50_000))
    assert path.stat().st_size < 5_000
    assert len(location(path)) == 100_000
    with pytest.raises(InputError, match="more than the"):
        location(path, max_bytes=100_000)
    # A file that says it is larger than the archive.
    path = write_archive(tmp_path / "b.tgz", ("a", b"1,0\n2,1\n" * 500))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:2048]))
    with pytest.raises(InputError, match=r"b.tgz: cannot be read as a tar archive .unexpected end of data"):
        location(path)
    path.write_bytes(b"no archive" * 100)
    with pytest.raises(InputError, match=r"b.tgz: cannot be read as a tar archive"):
        location(path)


def write_census(path, rows, header="PUMA,AGEP,SEX,MSP,HISP,RAC1P,PINCP"):
    content = "".join(f"{line}\n" for line in [header, *rows]).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


PERSONS = [
    "a,28,1,6,0,1,35000.0",
    "b,3,2,N,0,9,N",
    "c,95,2,1,0,4,50001.0",
    "d,15,1,6,0,2,-9000",
    "e,61,2,3,0,8,50000.0",
]


def test_census(tmp_path):
    paths = [
        write_census(tmp_path / "a.csv.gz", PERSONS),
        write_census(tmp_path / "b.csv", ["7,01,2,1,5,40"], "pincp,SEX,RAC1P,MAR,MSP,AGEP"),
    ]
    table = census(paths, "acs")
    assert table.values.tolist() == [[28, 5, 0, 0], [95, 0, 3, 1], [15, 5, 1, 0], [61, 2, 7, 1], [40, 4, 1, 0]]
    assert [column.name for column in table.columns] == ["age", "marital-status", "race", "sex"]
    assert [column.categories for column in table.columns] == [None, MARITAL["MSP"], RACES, ("Male", "Female")]
    assert (table.labels.tolist(), table.class_names) == ([0, 1, 0, 0, 0], ("<=50K", ">50K"))
    assert table.notes == ("1 of 6 persons are left out because income does not apply to them",)
    # Where every file has the paper's MAR, that is taken.
    table = census(paths[1:], "acs")
    assert table.columns[1].categories == MARITAL["MAR"]
    assert (table.values.tolist(), table.notes) == ([[40, 0, 1, 0]], ())


def test_census_minimum_age(tmp_path):
    table = census([write_census(tmp_path / "a.csv", PERSONS)], "acs", minimum_age=29)
    assert table.values[:, 0].tolist() == [95, 61]
    assert table.notes == (
        "1 of 5 persons are left out because income does not apply to them",
        "2 persons with an income are left out: they are younger than 29",
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "a,28,3,6,0,1,0",
            r"a\.csv: 1 persons with an income have a SEX that",
        ),
        ("a,28,1,7,0,1,0", r"have a MSP that"),
        ("a,28,1,6,0,0,0", r"have a RAC1P that"),
        ("a,28,1,6,0,1.5,0", r"have a RAC1P that"),
        ("a,N,1,6,0,1,0", r"have a AGEP .*; is it a file of ACS person records"),
        ("a,28,1,6,0,1,low", "cannot be read as ACS person records .*Row #2"),
        ("a,28,1", "cannot be read as ACS person records .*Expected 7 columns"),
        ("a,2,1,N,0,1,N", r"is left \(1 of 1 persons are left out"),
    ],
)
def test_census_refuses(tmp_path, row, message):
    with pytest.raises(InputError, match=message):
        census([write_census(tmp_path / "a.csv", [row])], "acs")


def test_census_refuses_other_files(tmp_path):
    path = write_census(tmp_path / "a.csv", [], "AGEP,SEX,RAC1P")
    with pytest.raises(InputError, match=r"a.csv: has no column PINCP, MAR or MSP; is it a file of ACS \*person\*"):
        census([path], "acs")
    paths = [
        write_census(tmp_path / f"{status}.csv", ["20,1,1,1,9"], f"AGEP,SEX,RAC1P,{status},PINCP") for status in MARITAL
    ]
    with pytest.raises(InputError, match="acs: some files have only MAR, others only MSP"):
        census(paths, "acs")
    with pytest.raises(InputError, match="more than the"):
        census(paths[:1], "acs", max_bytes=20)
    paths[0].write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"MAR\.csv: its first line is no"):
        census(paths[:1], "acs")
    paths[0].write_bytes(b"")
    with pytest.raises(InputError, match=r"MAR.csv: has no column AGEP"):
        census(paths[:1], "acs")


def test_bounded_streams(tmp_path):
    content = bytes(range(256)) * 100
    for name, stored in (("plain", content), ("packed", gzip.compress(content))):
        (tmp_path / name).write_bytes(stored)
        with open_bounded(tmp_path / name, len(content)) as stream:
            assert stream.read() == content
        with (
            pytest.raises(InputError, match=rf"{name}: .* 0.0 GiB"),
            open_bounded(tmp_path / name, len(content) - 1) as stream,
        ):
            stream.read()
        with open_bounded(tmp_path / name, None) as stream:
            assert stream.read(300) == content[:300]
    (tmp_path / "packed").write_bytes(gzip.compress(content)[:-20])
    with (
        pytest.raises(InputError, match=r"packed: cannot be read .*; was the download interrupted"),
        open_bounded(tmp_path / "packed") as stream,
    ):
        stream.read()


def test_embedded_tables_are_those_of_scikit_learn():
    from sklearn.datasets import load_breast_cancer, load_wine

    pairs: list[tuple[Table, Any]] = [(breast_cancer(), load_breast_cancer()), (wine(), load_wine())]
    for table, bunch in pairs:
        assert np.array_equal(table.values, bunch.data)
        assert np.array_equal(table.labels, bunch.target)
        assert table.class_names == tuple(bunch.target_names)
        assert [column.name for column in table.columns] == list(bunch.feature_names)
        assert not any(category_counts(table))


def real(name):
    folder = os.environ.get("JAXAUDIT_DATA")
    if folder is None or not (Path(folder) / name).exists():
        pytest.skip(f"JAXAUDIT_DATA names no folder of real data sets with {name}")
    return name


@pytest.mark.parametrize(
    ("name", "classes", "counts"),
    [
        # The numbers of records that adult.names states.
        ("adult@train", [24_720, 7_841], (0, 9, 16, 0, 7, 15, 6, 5, 2, 0, 0, 0, 42)),
        ("adult@all", [37_155, 11_687], (0, 9, 16, 0, 7, 15, 6, 5, 2, 0, 0, 0, 42)),
        ("acs", [48_466, 24_650], (0, 6, 9, 2)),
    ],
)
def test_real_sets(name, classes, counts):
    table = load_table(real(name.partition("@")[0]) and name)
    assert np.bincount(table.labels).tolist() == classes
    assert category_counts(table) == counts
    assert (np.ptp(table.values, axis=0) > 0).all()


def test_real_adult_knows_what_is_missing():
    table = load_table(real("adult") and "adult@all")
    categories = [column.categories or () for column in table.columns]
    missing = [each.index(MISSING) if MISSING in each else -1 for each in categories]
    counts = (table.values == np.array(missing)).sum(axis=0).tolist()
    # adult.names: 48,842 records, 45,222 without unknown values.
    assert counts == [0, 2_799, 0, 0, 0, 2_809, 0, 0, 0, 0, 0, 0, 857]
    assert int((table.values != np.array(missing)).all(axis=1).sum()) == 45_222


def test_real_census_leaves_out_those_below_15():
    table = load_table(real("acs") and "acs")
    assert table.notes == ("14177 of 87293 persons are left out because income does not apply to them",)
    assert (table.values[:, 0].min(), table.values[:, 0].max()) == (15, 95)


def test_real_location():
    table = load_table(real("location") and "location")
    assert table.values.shape == (5_010, 446)
    assert np.bincount(table.labels).min() > 90
    assert table.class_names == tuple(map(str, range(1, 31)))
