"""What is said of a rate that is not given, by everything that tells of an attack by a bank."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.banks import save
from support.cli_runs import jaxaudit

MODELS, RECORDS = 32, 1500


@pytest.fixture(scope="module")
def lumpy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that remember nothing and are wrong of a few records: most of RMIA's scores of a model are equal."""
    folder, random = tmp_path_factory.mktemp("lumpy") / "bank", np.random.default_rng(5)
    rows = np.random.default_rng(6).random((MODELS, RECORDS)) < 0.5
    odds = random.normal(14, 6, RECORDS) + random.normal(0, 2, rows.shape) + random.normal(0, 1, (MODELS, 1))
    (folder / "outputs").mkdir(parents=True)
    said = {"format": 1, "outputs": "log_odds", "classes": 3, "records": RECORDS, "models": MODELS}
    (folder / "bank.json").write_text(json.dumps(said))
    np.save(folder / "labels.npy", np.arange(RECORDS) % 3)
    np.save(folder / "membership.npy", rows)
    for model, values in enumerate(odds):
        save(folder, model, values)
    return folder


def test_why_a_rate_is_not_given_is_said_in_the_same_words_everywhere(
    lumpy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In the JSON, on a terminal of 80 columns, and on the page beside each table that leaves one out."""
    monkeypatch.chdir(tmp_path)
    words = ("--attacks", "rmia", "--report", "page.html", "--out", "run")
    shown = jaxaudit("attack", "--shadows", str(lumpy), *words)
    assert shown.code == 0, shown.err
    result = json.loads(Path("run/result.json").read_text())
    withheld = [rate for rate in result["attacks"][0]["tpr_at_fpr"] if not rate["holds"]]
    assert withheld
    assert all(rate["value"] is None for rate in withheld)
    checks = {each["name"]: each["message"] for each in result["finding"]["checks"]}
    said = checks["thresholds hold on other models"].split(": ")[0]
    assert max(map(len, shown.out.splitlines())) <= 80
    terminal = " ".join(shown.out.split())
    assert terminal.count(said) == 2
    # No threshold holds at which records could be named.
    assert result["exposure"]["at_fpr"] is None
    assert "0% false positives. separation" not in terminal
    page = " ".join(Path("page.html").read_text().split())
    assert f"none beside one: {said}" in page
    assert f"What rmia reaches; none: {said}" in page
