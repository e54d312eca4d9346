"""300 patients withdraw their records: the hospital, the company, and the blind test of what the company says.

    python deletion_case.py        # half a minute

The hospital runs `jaxaudit`; the company runs a script of its own. Two companies answer: one trained again without the
records, one did nothing.
"""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier

DEAL = (
    "deal records.csv --groups patient --members-share 0.4 --holdout-share 0.3 --blind --seed 2000000000000000001 "
    "--out deal"
)
"""In earnest without `--seed`: whoever knows the seed and the records knows the sets."""


def hospital_collects() -> None:
    """1,000 patients with one to three visits each, and whether they were readmitted: `records.csv`."""
    rng = np.random.default_rng(7)
    ill = rng.random(1000) < 0.4
    usual = rng.normal(0, 1, (1000, 6)) + 0.8 * ill[:, None]
    visits = np.repeat(np.arange(1000), rng.integers(1, 4, 1000))
    values = usual[visits] + rng.normal(0, 0.4, (len(visits), 6))
    outcome = np.where(ill[visits] ^ (rng.random(len(visits)) < 0.1), "readmitted", "discharged")
    with Path("records.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["patient", "age", "pressure", "glucose", "creatinine", "pulse", "weight", "label"])
        lines.writerows(
            [f"P{patient:04}", *row, each]
            for patient, row, each in zip(visits, values.round(2).tolist(), outcome, strict=True)
        )


def company_trains(*files: str) -> RandomForestClassifier:
    """A model of the records in these files."""
    x, y = [], []
    for name in files:
        with Path(f"deal/{name}.csv").open(newline="", encoding="utf-8") as file:
            for record in csv.DictReader(file):
                del record["group"]
                y.append(record.pop("label"))
                x.append([float(cell) for cell in record.values()])
    return RandomForestClassifier(300, min_samples_leaf=3, random_state=1).fit(x, y)


def company_answers(model: RandomForestClassifier, answer: str) -> None:
    """The model's probabilities of each record of `challenge.csv`, with the record's name, every decimal."""
    with Path("deal/challenge.csv").open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    outputs = np.asarray(model.predict_proba([[float(cell) for cell in row[1:]] for row in rows]))
    with Path(answer).open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["record", "discharged", "readmitted"])
        lines.writerows([row[0], *each] for row, each in zip(rows, outputs.tolist(), strict=True))


def hospital_runs(command: str, quietly: bool = False) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jaxaudit", *command.split()], capture_output=True, text=True, check=True
    )
    if not quietly:
        print(f"$ jaxaudit {command}", done.stdout, sep="\n")


if __name__ == "__main__":
    hospital_collects()
    hospital_runs(DEAL, quietly=True)
    before = company_trains("query", "members")
    after = company_trains("members")
    for model, answer in ((after, "trained_again.csv"), (before, "did_nothing.csv")):
        company_answers(model, answer)
        hospital_runs(f"ks --deal deal --target {answer}")
