"""`jaxaudit attack --shadows BANK --pdtp RUN`: PDTP of the same records beside the deciding attack."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.banks import save
from support.cli_runs import jaxaudit, refused

from jaxaudit import attack
from jaxaudit.attacks.records import LiRA
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.errors import InputError
from jaxaudit.runs.saved import read_run

RECORDS, MODELS, MEASURED = 60, 24, 50
ATTACK = ("--shadows", "bank", "--attacks", "lira-fixed")


def write_table(path: Path, seed: int, categories: bool = False) -> None:
    """Two classes that overlap; the third column may be one of categories."""
    random = np.random.default_rng(seed)
    values, labels = random.normal(size=(RECORDS, 3)).round(4), np.arange(RECORDS) % 2
    values[:, 0] += labels
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["one", "two", "three", "label"])
        for row, label in zip(values.tolist(), labels, strict=True):
            rows.writerow([*row[:2], "xy"[row[2] > 0] if categories else row[2], "ab"[label]])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank of query set and holdout whose models remember, and runs of `pdtp` on the query set and another table."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for seed, name in enumerate(("query.csv", "holdout.csv", "other.csv", "mixed.csv")):
            write_table(Path(name), seed, name == "mixed.csv")
        plan = ("--deal", ".", "--image-size", "none", "--models", str(MODELS))
        done = jaxaudit("shadows", "plan", *plan, "--out", "bank")
        assert done.code == 0, done.err
        bank = load_bank("bank")
        for model, row in enumerate(bank.membership):
            values = np.random.default_rng(model).normal(size=(2 * RECORDS, 2))
            values[np.arange(2 * RECORDS), bank.labels] += row * np.linspace(0, 6, 2 * RECORDS)[::-1]
            save(Path("bank"), model, values)
        for name in ("query", "holdout", "other", "mixed"):
            more = ("--measured-records", str(MEASURED)) if name == "query" else ()
            words = ("--csv", f"{name}.csv", "--label", "label", "--model", "nb", "--bins", "0", *more, "--out", name)
            assert jaxaudit("pdtp", *words).code == 0
    return folder


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_records_are_compared_by_their_places(folder: Path):
    """By hand from the two tables that the two runs wrote."""
    options = (*ATTACK, "--pdtp", "query", "--out", "run", "--report", "page.html")
    done = jaxaudit("attack", *options)
    assert done.code == 0, done.err
    measured = {int(row["index"]): float(row["pdtp"]) for row in rows_of("query/records.csv")}
    found = rows_of("run/records.csv")
    for row in found:
        known = measured.get(int(row["place"])) if row["set"] == "query" else None
        assert row["pdtp"] == ("" if known is None else str(known))
    both = [row for row in found if row["pdtp"] and row["named"]]
    assert len(both) == len(measured) == MEASURED
    pdtp, named, apart = (np.array([float(row[name]) for row in both]) for name in ("pdtp", "named", "separation"))
    beside = read_run(Path("run")).result.beside_pdtp  # type: ignore[attr-defined]
    rank: Any = stats.spearmanr(pdtp, named)
    assert (beside.rank_correlation, beside.p_value) == pytest.approx((rank.statistic, rank.pvalue))
    assert beside.separation_correlation == pytest.approx(stats.spearmanr(pdtp, apart)[0])
    assert beside.both == ((pdtp > 1) & (named >= 0.5)).sum()
    assert beside.attack_alone == ((pdtp <= 1) & (named >= 0.5)).sum() > 0
    assert beside.pdtp_alone == ((pdtp > 1) & (named < 0.5)).sum()
    assert beside.both + beside.pdtp_alone + beside.attack_alone + beside.neither == MEASURED
    assert (list(beside.pdtp), list(beside.named)) == (pdtp.tolist(), named.tolist())
    page = Path("page.html").read_text()
    for said in ("Records at risk by PDTP", "Rank correlation of PDTP"):
        assert said in page
        assert said in done.out
    assert jaxaudit("report", "run", "--out", "again.html").code == 0
    assert Path("again.html").read_text().count("<svg") == page.count("<svg") == 4


def test_pdtp_changes_nothing_else(folder: Path):
    alone, beside = (jaxaudit("attack", *ATTACK, *more, "--json").result for more in ((), ("--pdtp", "query")))
    assert alone.pop("beside_pdtp") is None
    assert beside.pop("beside_pdtp")["neither"] > 0
    assert beside["provenance"]["options"]["pdtp"] == "query"
    for each in (alone, beside):
        each.pop("provenance")
    assert alone == beside


def test_a_run_of_other_records_is_refused(folder: Path):
    found = jaxaudit("attack", *ATTACK, "--pdtp", "holdout", "--out", "run", "--json").result["beside_pdtp"]
    assert found["neither"] > 0
    np.save("target.npy", np.random.default_rng(1).normal(size=(RECORDS, 2)))
    for words, said in (
        (("--pdtp", "other"), "none of the bank's sets"),
        (("--pdtp", "mixed"), "categories"),
        (("--pdtp", "run"), "`jaxaudit pdtp`"),
        # A set that is not attacked.
        (("--pdtp", "holdout", "--target", "target.npy"), "holdout set"),
    ):
        assert said in " ".join(refused(("attack", *ATTACK, *words, "--out", "not")).split())
    refused(("attack", "--pdtp", "query"), ("--shadows",))


def test_a_result_whose_counts_do_not_fit_is_refused(folder: Path):
    assert jaxaudit("attack", *ATTACK, "--pdtp", "query", "--out", "run").code == 0
    said = json.loads(Path("run/result.json").read_text())
    for change in ({"both": said["beside_pdtp"]["both"] + 1}, {"named": [2.0] * MEASURED}, {"pdtp": [-1.0] * MEASURED}):
        Path("run/result.json").write_text(json.dumps({**said, "beside_pdtp": {**said["beside_pdtp"], **change}}))
        with pytest.raises(InputError):
            read_run(Path("run"))


def test_python_takes_pdtp_of_any_source(folder: Path):
    """Infinite and unmeasured ones, too; PDTP that is the same everywhere has no rank correlation."""
    bank, pdtp = load_bank("bank"), np.full(2 * RECORDS, np.nan)
    pdtp[:10] = np.inf
    pdtp[10:20] = 0.0
    found = attack(bank, attacks=[LiRA(fixed=True)], pdtp=pdtp).result.beside_pdtp
    assert found is not None
    assert len(found.pdtp) == len(found.named) == 20
    assert found.both + found.pdtp_alone == 10
    same = attack(bank, attacks=[LiRA(fixed=True)], pdtp=np.zeros(2 * RECORDS)).result.beside_pdtp
    assert same is not None
    assert np.isnan(same.rank_correlation)
    with pytest.raises(InputError, match=r"must have \(120,\)"):
        attack(bank, attacks=[LiRA(fixed=True)], pdtp=np.zeros(7))
