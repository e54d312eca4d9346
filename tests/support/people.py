"""A small table of people: two columns of numbers, two of words, and a label that follows from them."""

import csv
from pathlib import Path

import numpy as np

PEOPLE = ("--data", "people.csv", "--label", "income")
"""The words that name it on a command line."""


def write_people(folder: Path) -> None:
    """`people.csv`: 60 records, of which one is there twice."""
    random = np.random.default_rng(5)
    rows = []
    for _ in range(59):
        age, hours = int(random.integers(18, 80)), round(float(random.uniform(5, 60)), 1)
        work, sex = random.choice(["private", "state", "?"]), random.choice(["F", "M"])
        rows.append([age, hours, work, sex, "high" if age + hours + random.normal(0, 15) > 80 else "low"])
    rows.append(rows[3])
    write_rows(folder / "people.csv", ["age", "hours", "work", "sex", "income"], rows)


def write_rows(path: Path, header: list[str], rows: list[list]) -> None:
    """A CSV of these."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def people_rows() -> list[list[str]]:
    """The lines of `people.csv`, its header first."""
    return list(csv.reader(Path("people.csv").read_text().splitlines()))
