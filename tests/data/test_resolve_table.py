"""What a person types, and the table they get."""

import numpy as np
import pytest
from support.small_sets import TABLES

from jaxaudit.data.sets.embedded_tables import wine
from jaxaudit.data.tables.resolve import load_table
from jaxaudit.errors import InputError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def data(folder):
    """A data directory with a little of every set."""
    for name, write in TABLES.items():
        (folder / "data" / name).mkdir(parents=True)
        write(folder / "data" / name)
    return folder / "data"


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("wine", 178),
        ("breast-cancer@train[-10%:]", 57),
        ("adult", 3),
        ("adult@all", 5),
        ("adult@test+train[:1]", 3),
        ("acs", 4),
        ("acs@b2019", 2),
        ("location", 3),
        ("purchase", 60),
    ],
)
def test_names(data, name, records):
    table = load_table(name, data_dir=data)
    assert len(table) == records
    assert table.name == name


def test_records_come_in_the_order_asked_for(data, monkeypatch):
    monkeypatch.setenv("JAXAUDIT_DATA", str(data))
    assert load_table("adult@test+train[:1]").values[:, 8].tolist() == [0, 0, 1]
    assert load_table("acs").values[:, 0].tolist() == [20, 21, 30, 31]
    assert load_table("acs@b2019+a2018").values[:, 0].tolist() == [30, 31, 20, 21]
    assert load_table("wine").content_hash == wine().content_hash


def test_options_of_named_sets(data):
    table = load_table("acs", data_dir=data, categorical=["age"], drop=["race", "sex"])
    assert [column.name for column in table.columns] == ["age", "marital-status"]
    assert table.columns[0].categories == ("20", "21", "30", "31")
    with pytest.raises(InputError, match="leave out the label column"):
        load_table("acs", data_dir=data, label="income")
    with pytest.raises(InputError, match="'rase'; did you mean 'race'"):
        load_table("acs", data_dir=data, drop=["rase"])


def test_files(folder, data):
    content = "a,b,income\n1,x,no\n2,y,yes\n3,x,no\n"
    (folder / "people.csv").write_text(content)
    (data / "more.csv").write_text(content)
    (folder / "odd@name.csv").write_text(content)
    for name in ("people.csv", str(folder / "people.csv"), "more.csv", "odd@name.csv"):
        table = load_table(name, label="income", numeric=["a"], data_dir=data)
        assert table.values.tolist() == [[1, 0], [2, 1], [3, 0]]
        assert table.name == name
    part = load_table("people.csv@train[1:]", label="income")
    assert part.labels.tolist() == [1, 0]
    assert part.columns[0].categories == ("1", "2", "3")
    # A set's name means the set; a path says that a file is meant.
    (folder / "wine").write_text(content)
    assert len(load_table("wine")) == 178
    assert len(load_table("./wine", label="income")) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("adult", r"put UCI's adult\.data and adult\.test \(or \.gz\) into a folder DIR/adult"),
        ("location", "put dataset_location.tgz of .* into a folder DIR/location and set JAXAUDIT_DATA=DIR"),
        ("acs", "put person files of the American Community Survey"),
        ("adutl", r"known table \(breast-cancer"),
        ("zzz\n", r"Is it spelled right\?"),
        ("~nobody-at-all/x.csv", "file here"),
        (".", "is a folder; give a CSV or Parquet file or one of breast-cancer"),
        ("wine@test", "wine@test has no split `test`; it has: train"),
        ("wine@train[200:]", "reaches outside the 178 records"),
    ],
)
def test_refused(name, message):
    with pytest.raises(InputError, match=message) as raised:
        load_table(name)
    assert "\n" not in str(raised.value)


def test_refused_with_a_data_directory(data):
    for folder in ("adult", "acs", "location", "purchase"):
        for path in (data / folder).iterdir():
            path.unlink()
        with pytest.raises(InputError, match=f"{folder}: .* into .*data.{folder}\\."):
            load_table(folder, data_dir=data)
    with pytest.raises(InputError, match=r"`x.csv` .*data.* known table"):
        load_table("x.csv", data_dir=data)


def test_purchase_is_the_same_set_every_time(data, monkeypatch, tmp_path):
    first = load_table("purchase", data_dir=data)
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "another cache"))
    assert load_table("purchase", data_dir=data).content_hash == first.content_hash
    assert len(np.bincount(first.labels)) == 10
