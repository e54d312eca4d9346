"""`jaxaudit ks` with a holdout and with the shadow test, from its options to its result."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from support.cli_runs import RECORDS, SETS, jaxaudit, records

from jaxaudit.audits.ks.models import Shadows
from jaxaudit.cli.ks.inputs import Given
from jaxaudit.cli.ks.run import identity
from jaxaudit.data import Examples
from jaxaudit.errors import InputError
from jaxaudit.report.ks.record import ks_schema

RECIPE = ("--hidden", "32", "--learning-rate", "0.02", "--batch-size", "50", "--replicates", "2", "--width", "16")
HELD = (*SETS, *RECIPE, "--holdout", "holdout.npz")


@pytest.fixture
def with_holdout(sets: Path) -> Path:
    inputs, labels = records(5, 0.0)
    np.savez("holdout.npz", x=inputs, y=labels)
    np.save("t.npy", np.eye(3)[np.arange(RECORDS) % 3] * 0.9 + 0.1 / 3)
    np.save("t_h.npy", np.eye(3)[np.arange(RECORDS) % 3] * 0.6 + 0.4 / 3)
    return sets


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the audit would have been asked for, where it stops at once."""
    seen: dict[str, Any] = {}

    def stop(key: Any, query: Any, calibration: Any, learner: Any, **options: Any) -> None:
        seen.clear()
        seen.update(options, query=query, calibration=calibration)
        raise InputError("enough")

    monkeypatch.setattr("jaxaudit.cli.ks.run.audit_ks", stop)
    return seen


def test_all_methods_in_one_result(with_holdout: Path):
    words = (*HELD, "--epochs", "25", "--method", "all", "--shadows", "19", "--holdout-shadows", "19")
    files = ("--target", "t.npy", "--holdout-target", "t_h.npy")
    done = jaxaudit("ks", *words, *files, "--target-data", "query.npz", "--json", "--out", "run")
    jsonschema.validate(done.result, json.loads(ks_schema()))
    file, simulated = done.result["targets"]
    assert [usage["method"] for usage in file["usage"]] == ["holdout", "shadow"]
    assert file["method"] == simulated["method"] == "holdout"
    # The file is surer of every query record than of any holdout record.
    assert file["verdict"] == "not forgotten"
    assert file["usage"][0]["p_never"] == 0.0005
    assert file["ema"]["p_value"] == 1
    assert file["paper_rule"] in ("forgotten", "not forgotten")
    provenance = done.result["provenance"]
    assert provenance["data"]["holdout"]["records"] == RECORDS
    assert [target["name"] for target in provenance["holdout_targets"]] == ["t_h.npy"]
    assert "--holdout-target" in provenance["command"]
    assert json.loads(Path("run/result.json").read_text()) == done.result
    with np.load("run/confidences.npz", allow_pickle=False) as arrays:
        assert arrays["log_odds_mixed"].shape == (19, 2 * RECORDS)


def test_what_judges(with_holdout: Path, asked: dict[str, Any]):
    def of(*words: str) -> tuple[Shadows, bool, bool, str]:
        done = jaxaudit("ks", *SETS, *RECIPE, *words)
        assert done.err.endswith("Error: enough\n")
        return asked["shadows"], asked["ema"], asked["holdout"] is not None, done.err.split("training ")[1].split()[0]

    held = ("--holdout", "holdout.npz")
    assert of() == (Shadows(39, 19, 19, 0), False, False, "85")
    assert of("--method", "shadow", "--shadows", "60") == (Shadows(60, 30, 30, 0), False, False, "128")
    assert of(*held) == (Shadows(mixed=31), False, True, "39")
    assert of("--method", "rho") == (Shadows(), False, False, "8")
    assert of("--method", "ema") == (Shadows(), True, False, "8")
    assert of("--method", "all")[:2] == (Shadows(39, 19, 19, 0), True)
    assert of("--method", "all", *held, "--holdout-shadows", "20")[:2] == (Shadows(39, 19, 19, 20), True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "holdout"), "--method holdout needs --holdout: records of the query set's provider"),
        (("--target", "t.npy", "--holdout-target", "t_h.npy"), "--holdout-target needs --holdout: the records"),
        (("--holdout", "holdout.npz", "--method", "rho"), "--method rho has no use for --holdout; leave one out"),
        (("--holdout", "holdout.npz", "--target", "t.npy"), "--target was given 1 times and --holdout-target 0 times"),
        (
            ("--holdout", "holdout.npz", "--target-data", "query.npz", "--holdout-target", "t_h.npy"),
            "--target was given 0 times and --holdout-target 1 times",
        ),
        (("--method", "ema", "--subsample", "1"), "--method ema learns from calibration records that"),
        (
            ("--holdout", "query.npz"),
            "300 of the 300 records of the holdout query.npz also occur in the query",
        ),
        (("--holdout", "calibration.npz"), "records of the holdout calibration.npz also occur in the calibration set"),
        (("--holdout", "nowhere.npz"), "--holdout nowhere.npz: there is no such file or folder"),
        (
            ("--holdout", "holdout.npz", "--target", "t.npy", "--holdout-target", "short.npy"),
            "short.npy: has 5 rows but the holdout 300 records; give one row for each, in the order of the holdout.",
        ),
    ],
)
def test_what_does_not_go_together_is_one_clear_line(with_holdout: Path, words: tuple[str, ...], message: str):
    np.save("short.npy", np.full((5, 3), 1 / 3))
    done = jaxaudit("ks", *SETS, *RECIPE, *words)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("Error: ") == 1


def test_what_query_set_and_holdout_share_is_dropped_with_its_outputs(with_holdout: Path, asked: dict[str, Any]):
    def shown(files: Any) -> list[list[float]]:
        return [file.probabilities[:, 0].tolist() for file in files]

    # The holdout has copies of query records 2 and 4, the query set has its record 9 at 0, too, and the calibration set
    # has the holdout's record 3 and query record 4.
    (mine, labels), (other, their), (held, own) = records(2, 0.0), records(3, 0.5), records(5, 0.0)
    mine[0], labels[0] = mine[9], labels[9]
    x, y = np.concatenate([held, mine[[2, 4]]]), np.concatenate([own, labels[[2, 4]]])
    more, names = np.concatenate([other, held[3:4], mine[4:5]]), np.concatenate([their, own[3:4], labels[4:5]])
    np.savez("query.npz", x=mine, y=labels)
    np.savez("holdout.npz", x=x, y=y)
    np.savez("calibration.npz", x=more, y=names)
    first = np.linspace(0.1, 0.9, RECORDS + 2, dtype=np.float64)
    rows = np.stack([first, 1 - first, 0 * first], axis=1)
    np.save("t.npy", rows[:RECORDS])
    np.save("t_h.npy", rows)
    files = ("--holdout", "holdout.npz", "--target", "t.npy", "--holdout-target", "t_h.npy")
    refused = jaxaudit("ks", *SETS, *RECIPE, *files)
    assert refused.code == 2
    assert "calibration.npz" in refused.err
    done = jaxaudit("ks", *SETS, *RECIPE, *files, "--drop-overlap")
    assert done.err.startswith(
        "1 query records are also in the calibration set; they were dropped from it\n"
        "1 holdout records are also in the calibration set; they were dropped from it\n"
        "2 holdout records are also in the query set; every record with a copy was dropped, 4 of the query set and 2 "
        "of the holdout, with their rows of the outputs\n"
    )
    left = np.delete(np.arange(RECORDS), [0, 2, 4, 9])
    np.testing.assert_array_equal(asked["query"].inputs, mine[left])
    np.testing.assert_array_equal(asked["holdout"].inputs, x[:RECORDS])
    assert len(asked["calibration"]) == RECORDS
    exact = first.astype(np.float32)
    assert shown(asked["outputs"]) == [exact[left].tolist()]
    assert shown(asked["holdout_outputs"]) == [exact[:RECORDS].tolist()]


def test_another_holdout_is_another_run():
    def of(seed: int, options: dict[str, Any]) -> Any:
        inputs, labels = records(seed, 0.0, 6)
        query = Examples(inputs, labels, ("a", "b", "c"), "same name")
        return identity({"model": "mlp", **options}, Given(query, query, None, [], []))

    assert of(1, {"shadows": 39}) == of(1, {"shadows": 39})
    assert of(1, {"shadows": 39}) != of(2, {"shadows": 39})
    assert of(1, {"shadows": 39}) != of(1, {"shadows": 40})
