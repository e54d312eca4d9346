"""The targets of `jaxaudit ks`: files of outputs of every kind, and targets simulated from data."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.cli_runs import CLASSES, LEARNS, QUICK, RECORDS, intercept, jaxaudit, records, write_sets

from jaxaudit.cli.ks.run import described_files

LABELS = np.arange(RECORDS) % CLASSES


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Probabilities of a model that was trained on the query set, and of one that was not: shadows of another run."""
    folder = tmp_path_factory.mktemp("shadows")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_sets(folder)
        assert jaxaudit("ks", *LEARNS, "--seed", "1", "--out", "run").code == 0
    with np.load(folder / "run/confidences.npz", allow_pickle=False) as arrays:
        return {"memory": _spread(arrays["query"][0]), "none": _spread(arrays["calibration"][0])}


def _spread(confidences: np.ndarray) -> np.ndarray:
    """Probabilities with these confidences, the rest given to the other classes alike."""
    rest = np.repeat((1 - confidences.astype(np.float64))[:, None] / (CLASSES - 1), CLASSES, axis=1)
    rest[np.arange(RECORDS), LABELS] = confidences
    return rest


def write_all(name: str, values: np.ndarray) -> list[str]:
    logits = np.log(values.clip(1e-12))
    np.save(f"{name}.npy", values)
    np.savez(f"{name}.npz", probabilities=values)
    np.savetxt(f"{name}.csv", values, delimiter=",", fmt="%.12f")
    np.savetxt(f"{name}_named.csv", values[:, ::-1], delimiter=",", fmt="%.12f", header="2,1,0", comments="")
    parquet.write_table(pa.table({str(k): values[:, k] for k in range(CLASSES)}), f"{name}.parquet")
    np.save(f"{name}_logits.npy", logits + 3)
    np.savez(f"{name}_logits.npz", logits=logits)
    np.savetxt(f"{name}_logits.csv", logits, delimiter=",", fmt="%.12f")
    parquet.write_table(pa.table({str(k): logits[:, k] for k in range(CLASSES)}), f"{name}_logits.parquet")
    np.savetxt(f"{name}_rounded.csv", values, delimiter=",", fmt="%.3f")
    np.save(f"{name}_rounded.npy", values.round(3))
    np.save(f"{name}_half.npy", values.astype(np.float16))
    kinds = ("", "_logits")
    plain = [f"{name}{kind}.{suffix}" for kind in kinds for suffix in ("npy", "npz", "csv", "parquet")]
    return [*plain, f"{name}_named.csv", f"{name}_rounded.csv", f"{name}_rounded.npy", f"{name}_half.npy"]


def judged(*words: str) -> dict[str, Any]:
    targets = jaxaudit("ks", *LEARNS, *words, "--json").result["targets"]
    return {target["name"]: target for target in targets}


def test_every_kind_of_file_gets_the_same_answer(sets: Path, outputs: dict[str, np.ndarray]):
    files = {name: write_all(name, values) for name, values in outputs.items()}
    files["none"] = [file for file in files["none"] if file.endswith((".npy", "logits.csv"))]
    found = judged(*[word for name in files for file in files[name] for word in ("--target", file)])
    assert list(found) == [*files["memory"], *files["none"]]
    for group in files.values():
        assert len({found[file]["verdict"] for file in group}) == 1
    assert max(found[file]["rho"]["high"] for file in files["memory"]) < 1
    assert min(found[file]["rho"]["median"] for file in files["none"]) > 0.8
    for name, group in files.items():
        exact = found[f"{name}.npy"]["rho"]["values"]
        for file in group:
            # Rounding both sides to 3 decimals moves a few confidences over one another.
            tolerance = 0.15 if "rounded" in file or "half" in file else 0.02
            np.testing.assert_allclose(found[file]["rho"]["values"], exact, atol=tolerance, err_msg=file)
    assert all(target["truth"] is None for target in found.values())


def test_the_kind_may_be_said(sets: Path, monkeypatch: pytest.MonkeyPatch):
    asked = intercept(monkeypatch, "jaxaudit.cli.ks.run.audit_ks")
    # Within [0, 1], so that only its owner can know that these are logits.
    np.save("l.npy", np.random.default_rng(0).random((RECORDS, CLASSES)))
    assert jaxaudit("ks", *QUICK, "--target", "l.npy", "--target-kind", "logits").err.endswith("Error: enough\n")
    (file,) = asked["targets"]
    assert described_files([file.outputs])[0] == {
        "name": "l.npy",
        "kind": "logits",
        "content_hash": file.outputs.content_hash,
    }
    assert file.outputs.content_hash.startswith("blake2b:")


def test_files_and_simulated_targets_together(sets: Path, outputs: dict[str, np.ndarray]):
    """Files of one name are told apart, none can speak to the terminal, and one in another order gets no verdict."""
    for folder, values in outputs.items():
        Path(folder).mkdir()
        np.save(f"{folder}/t.npy", values)
    named = "[red]x[bold]\x1b[31m\n.npy"
    np.save(named, outputs["memory"])
    np.save("shuffled.npy", outputs["memory"][np.random.default_rng(0).permutation(RECORDS)])
    files = ("memory/t.npy", "none/t.npy", named, "shuffled.npy")
    given = [word for file in files for word in ("--target", file)]
    found = judged("--target-data", "query.npz", *given, "--out", "run")
    assert list(found) == [*files, "query.npz"]
    assert [found[name]["verdict"] for name in ("memory/t.npy", named, "query.npz")] == ["not forgotten"] * 3
    shown = jaxaudit("report", "run", "--text")
    assert r"[red]x[bold]\x1b[31m\n.npy" in shown.out
    assert "\x1b" not in shown.out + shown.err
    shuffled = found["shuffled.npy"]
    assert shuffled["verdict"] == "inconclusive"
    assert shuffled["because"].startswith("target outputs: ")
    assert "target outputs" in failed(shuffled)
    allowed = judged("--target", "shuffled.npy", "--allow-unrelated-target")["shuffled.npy"]
    assert allowed["rho"] == shuffled["rho"]
    assert "target outputs" not in failed(allowed)


def failed(target: dict[str, Any]) -> list[str]:
    return [check["name"] for check in target["finding"]["checks"] if check["state"] == "failed"]


def test_a_target_is_trained_on_the_union_of_its_data(sets: Path):
    found = judged("--target-data", "calibration.npz", "--target-data", "query.npz:0.1", "--epochs", "2")
    ((name, target),) = found.items()
    assert name == "calibration.npz + 10% of query.npz"
    assert target["truth"] == {"used_fraction": 0.1, "training_records": 330, "expected": "not forgotten"}


def test_data_far_away_makes_a_target_that_never_saw_the_query_set(sets: Path):
    done = jaxaudit("ks", *LEARNS, "--target-data", "far.npz", "--json", "--out", "run")
    (target,) = done.result["targets"]
    assert target["truth"] == {"used_fraction": 0.0, "training_records": RECORDS, "expected": "forgotten"}
    assert target["verdict"] == "forgotten"
    (data,) = done.result["provenance"]["data"]["target_data"]
    assert (data["name"], data["records"]) == ("far.npz", RECORDS)
    row = next(line for line in Path("run/table.txt").read_text().splitlines() if line.startswith("far.npz"))
    assert row.split()[1:3] == ["none", "forgotten"]


def test_query_records_are_known_again_in_other_files(sets: Path):
    inputs, labels = (
        np.concatenate([far, own[:30]]) for far, own in zip(records(7, 1.0), records(2, 0.0), strict=True)
    )
    np.savez("mixed.npz", x=inputs, y=labels)
    (target,) = judged("--target-data", "mixed.npz", "--epochs", "2").values()
    assert target["truth"] == {"used_fraction": 0.1, "training_records": RECORDS + 30, "expected": "not forgotten"}
