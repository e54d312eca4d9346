"""`jaxaudit shadows`: plan, grow, add, show; what is refused, and that nothing is ever half there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import banks
from support.banks import softmax
from support.cli_runs import CLASSES, Done, content, jaxaudit, records, refused

import jaxaudit.data.bank.bank as writing
from jaxaudit import load_bank
from jaxaudit.data import load
from jaxaudit.runs import working_in

N = 60
SETS = ("--deal", "deal", "--calibration", "c.npz")
FILES = {"q": "deal/query.npz", "h": "deal/holdout.npz", "c": "c.npz"}


def arrays_of(name: str) -> dict[str, np.ndarray]:
    """What the file of `NAME` holds: the sets are of one domain, with groups of 3 records."""
    inputs, labels = records(2, 0.0, 3 * N)
    start = "qhc".index(name) * N
    part = slice(start, start + N)
    return {"x": inputs[part], "y": labels[part], "who": np.array([f"{name} {place // 3}" for place in range(N)])}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`deal` with query set and holdout, and `c.npz`, of 60 records each."""
    monkeypatch.chdir(tmp_path)
    Path("deal").mkdir()
    for name in "qhc":
        save(name)
    return tmp_path


def save(name: str, **changed: np.ndarray) -> None:
    arrays: dict[str, Any] = {**arrays_of(name), **changed}
    np.savez(FILES[name], **arrays)


def planning(*words: str, out: str = "bank", models: int = 20) -> tuple[str, ...]:
    return ("shadows", "plan", *(words or SETS), "--models", f"{models}", "--out", out)


def plan(*words: str, **options: Any) -> Done:
    return jaxaudit(*planning(*words, **options))


def add(*words: str) -> Done:
    return jaxaudit("shadows", "add", "bank", *words)


def not_added(*words: str, said: tuple[str, ...] = ()) -> str:
    return refused(("shadows", "add", "bank", *words), said)


def good(*words: str, **options: Any) -> Done:
    done = plan(*words, **options)
    assert done.code == 0, done.err
    return done


def shown(bank: str = "bank") -> dict[str, Any]:
    return jaxaudit("shadows", "show", bank, "--json").result


def outputs(model: int, bank: str = "bank", memory: float = 6.0) -> np.ndarray:
    """Logits of a model that was trained on its row, and remembers it."""
    found = load_bank(bank)
    return banks.logits(model, found.membership[model], memory, found.labels)


def train(*models: int, bank: str = "bank") -> None:
    banks.train(load_bank(bank), models, memory=6.0)


def test_a_plan_is_arrays_and_a_description(folder: Path):
    assert plan(*SETS, "--seed", "5").code == 0
    assert {path.name for path in Path("bank").iterdir()} == {
        *("bank.json", "labels.npy", "membership.npy", "seeds.npy", "outputs")
    }
    said = json.loads(Path("bank/bank.json").read_text())
    assert (said["format"], said["outputs"], said["records"], said["models"], said["seed"]) == (1, "logits", 180, 20, 5)
    assert (said["classes"], said["class_names"], said["queries"]) == (CLASSES, ["0", "1", "2"], 1)
    assert said["counts"] == {"query": N, "holdout": N, "calibration": N}
    names = {"query": "q", "holdout": "h", "calibration": "c"}
    assert said["hashes"] == {role: load(FILES[name]).content_hash for role, name in names.items()}
    assert said["versions"].keys() == {"jaxaudit", "numpy"}
    membership, seeds = np.load("bank/membership.npy"), np.load("bank/seeds.npy")
    assert (membership.dtype, membership.shape, seeds.dtype, seeds.shape) == (bool, (20, 180), np.uint32, (20,))
    assert set(membership[:, : 2 * N].sum(axis=1)) == {N}
    assert set(membership[:, 2 * N :].sum(axis=1)) == {40}
    np.testing.assert_array_equal(
        np.load("bank/labels.npy"), np.concatenate([np.load(path)["y"] for path in FILES.values()])
    )
    assert {path.stat().st_mode & 0o777 for path in Path("bank").glob("*.*")} == {0o600}


def test_a_bank_grows(folder: Path):
    good(models=12)
    train(0, 3)
    # The same again changes nothing.
    before, rows = content(folder), np.load("bank/membership.npy")
    good(models=12)
    assert content(folder) == before
    assert "18 of them new" in good(models=30).out
    assert shown()["finished"] == 2
    # By the command in its description, too.
    words = json.loads(Path("bank/bank.json").read_text())["command"]
    assert jaxaudit(*words[1:], "--out", "whole").code == 0
    for name in ("membership.npy", "seeds.npy", "labels.npy", "bank.json"):
        assert Path("bank", name).read_bytes() == Path("whole", name).read_bytes()
    np.testing.assert_array_equal(np.load("bank/membership.npy")[:12], rows)


OTHERS = {
    "seed": (*SETS, "--seed", "8"),
    "query set": ("--deal", "swapped", *SETS[2:]),
    "calibration set": SETS[:2],
    "outputs": (*SETS, "--outputs", "probabilities"),
    "groups": (*SETS, "--groups", "who"),
}


def test_another_plan_and_rows_that_were_changed_are_refused_by_what_differs(folder: Path):
    good(models=12)
    Path("swapped").mkdir()
    for name, other in (("query", "holdout"), ("holdout", "query")):
        Path(f"swapped/{name}.npz").write_bytes(Path(f"deal/{other}.npz").read_bytes())
    for name, words in OTHERS.items():
        refused(planning(*words), (name,))
    refused(planning(models=11), ("12 models",))
    rows = np.load("bank/membership.npy")
    rows[3] = rows[4]
    np.save("bank/membership.npy", rows)
    refused(planning(), ("membership.npy",))


def test_a_growth_that_was_stopped_is_refused_by_readers_and_finished_by_the_same_command(folder: Path):
    good(models=12)
    train(0)
    usual, written = writing.whole_file, []

    def stop(path: Path, **named: Any) -> Any:
        if path.name == "bank.json":
            raise OSError(28, "No space left on device")
        written.append(path.name)
        return usual(path, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "whole_file", stop)
        assert plan(models=20).code == 2
    assert written == ["seeds.npy", "membership.npy"]
    done = jaxaudit("shadows", "show", "bank")
    assert (done.code, "repeat it" in done.err) == (2, True)
    good(models=20)
    good(models=20, out="whole")
    assert Path("bank/membership.npy").read_bytes() == Path("whole/membership.npy").read_bytes()
    assert shown()["finished"] == 1


def test_a_plan_that_was_killed_is_made_by_the_same_command(folder: Path):
    """It leaves drafts and some arrays, and no bank."""
    good(out="whole")
    Path("bank/unfinished").mkdir(parents=True)
    Path("bank/unfinished/.writing-0").write_bytes(b"half")
    Path("bank/labels.npy").write_bytes(b"half")
    assert jaxaudit("shadows", "show", "bank").code == 2
    good()
    assert content(Path("bank")) == content(Path("whole"))


@pytest.mark.parametrize(("path", "of"), [("q", "q"), ("h", "q"), ("c", "h")])
def test_a_record_that_occurs_twice_is_refused_or_dropped(folder: Path, path: str, of: str):
    inputs = arrays_of(path)["x"]
    inputs[[7, 9]] = arrays_of(of)["x"][:2]
    save(path, x=inputs)
    refused(planning(), ("--drop-overlap",))
    good(*SETS, "--drop-overlap")
    bank = load_bank("bank")
    start = {"q": 0, "h": N, "c": 2 * N}
    copies = {start[path] + 7, start[path] + 9}
    originals = {start[of], start[of] + 1} if "c" not in (path, of) else set()
    assert set(np.flatnonzero(bank.dropped)) == copies | originals
    assert set(bank.membership[:, : 2 * N].sum(axis=1)) == {int((~bank.dropped[:N]).sum())}
    assert bank.description.records == 3 * N
    # It grows as it was planned.
    good(*SETS, "--drop-overlap", models=30)


def test_files_are_added_in_order_whatever_their_form(folder: Path):
    """The command can be repeated with more files, and no model is there twice."""
    good()
    np.save("first.npy", outputs(0).astype(np.float32))
    np.savez("second.npz", logits=outputs(1))
    np.savetxt("third.csv", outputs(2), delimiter=",", header="0,1,2", comments="")
    np.save("ninth.npy", outputs(9))
    done = add("first.npy", "second.npz")
    assert (done.code, done.err) == (0, "")
    done = add("first.npy", "second.npz", "third.csv")
    assert (done.code, "second.npz: is there already as model 1" in done.out) == (0, True)
    assert "3 of 20 models have outputs. What is missing:" in done.out
    assert (add("ninth.npy", "--model", "9").code, add("ninth.npy", "--model", "9").code) == (0, 0)
    bank = load_bank("bank")
    assert bank.finished().tolist() == [0, 1, 2, 9]
    for model in (0, 1, 2, 9):
        found = np.load(f"bank/outputs/{model:05}.npy")
        assert (found.dtype, found.shape) == (np.float32, (3 * N, CLASSES))
        np.testing.assert_allclose(found, outputs(model), rtol=1e-6)
    assert (Path("bank/outputs/00000.npy").stat().st_mode & 0o777) == 0o600


REFUSED = {
    "rows too few": (lambda good: good[1:], "179 rows"),
    "probabilities": (softmax, "bank of logits"),
    "labels": (lambda good: good.argmax(axis=1), "confidences"),
    "views": (lambda good: good[:, None], "shape"),
}


def test_other_outputs_are_refused(folder: Path):
    good()
    for bad, why in REFUSED.values():
        np.save("bad.npy", bad(outputs(0)))
        assert "--target-kind" not in not_added("bad.npy", said=(why,))
    # And logits by a bank of probabilities.
    good(*SETS, "--outputs", "probabilities", out="shares")
    np.save("logits.npy", outputs(0))
    refused(("shadows", "add", "shares", "logits.npy"), ("bank of probabilities",))


def test_a_place_that_is_taken_or_not_there_is_refused(folder: Path):
    good()
    train(*range(20))
    np.save("other.npy", outputs(3) + 1)
    for words in (("--model", "3"), ("--model", "20"), (), ("other.npy", "--model", "3")):
        not_added("other.npy", *words)
    not_added("gone.npy")
    refused(("shadows", "add", "nowhere", "other.npy"))
    not_added("other.npy", "gone.npy", "--model", "3", said=("--model", "2 files"))


def test_one_process_at_a_time_writes(folder: Path):
    good()
    np.save("0.npy", outputs(0))
    with working_in(Path("bank")):
        not_added("0.npy", said=("in use",))
        refused(planning(models=30), ("in use",))
        # To look is no writing.
        assert jaxaudit("shadows", "show", "bank").code == 0
    assert add("0.npy").code == 0


def test_what_is_there_is_shown(folder: Path):
    good(models=30)
    train(*range(20))
    np.save("bank/outputs/00021.npy", outputs(21)[1:])
    done = jaxaudit("shadows", "show", "bank")
    assert (done.code, done.err) == (0, "")
    found = shown()
    assert found["schema"] == "jaxaudit.shadows/1"
    assert (found["models"], found["finished"], found["missing"]) == (30, 20, list(range(20, 30)))
    assert list(found["refused"]) == ["21"]
    bank = load_bank("bank")
    right = [(outputs(model).argmax(axis=1) == bank.labels)[bank.membership[model]].mean() for model in range(20)]
    assert found["training_accuracy"] == pytest.approx({f"{model}": each for model, each in enumerate(right)})
    possible = {name: each["possible"] for name, each in found["tests"].items()}
    assert possible == {"holdout": True, "shadow": False}
    for words in ("20 of 30", f"model {np.argmin(right)}", found["next"]):
        assert words in done.out


def test_a_damaged_file_is_replaced_when_its_model_is_named(folder: Path):
    good(models=3)
    train(0, 1, 2)
    path = Path("bank/outputs/00001.npy")
    path.write_bytes(path.read_bytes()[:-100])
    found = shown()
    assert (found["missing"], found["next"]) == ([1], "jaxaudit shadows add bank FILE --model 1")
    np.save("again.npy", outputs(1))
    not_added("again.npy")
    assert add("again.npy", "--model", "1").code == 0
    assert shown()["missing"] == []


# Files of the wrong model, of two models at once, and those that do not show their model.


def test_outputs_of_another_model_are_refused_by_its_number(folder: Path):
    good()
    train(0, 1, 2, 3)
    for model in (4, 5, 10):
        np.save(f"{model}.npy", outputs(model))
    # As a shell sorts them; then none is added.
    not_added("10.npy", "4.npy", said=("--model 10",))
    # Two that were swapped.
    for file, other in (("4.npy", 5), ("5.npy", 4)):
        np.save(file, outputs(other))
    not_added("4.npy", "5.npy", said=("model 5, not of model 4",))
    assert add("5.npy").code == 0
    assert add("10.npy", "--model", "10").code == 0


def test_the_same_outputs_are_of_one_model(folder: Path):
    """Whatever the file is called; in one command, all files after a copy would be taken for the wrong models."""
    good()
    for name in ("0.npy", "copy.npy"):
        np.save(name, outputs(0))
    np.save("1.npy", outputs(1))
    for words in (("0.npy", "0.npy"), ("0.npy", "copy.npy", "1.npy")):
        not_added(*words, said=("same outputs",))
    assert add("0.npy", "1.npy").code == 0
    not_added("copy.npy", "--model", "5", said=("model 0 has already", "model 5"))


def test_training_sets_of_others_cannot_show_it_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    bank = load_bank(banks.write_bank(tmp_path / "bank"))
    np.save("3.npy", banks.logits(3, bank.membership[3]))
    assert "not dealt by jaxaudit" in add("3.npy").err


def test_a_first_file_that_was_misplaced_is_named_when_others_are_there(folder: Path):
    """Alone it shows nothing: how difficult the records are hides what it remembers. It stops no other file."""
    good()
    np.save("first.npy", outputs(4, memory=1.2))
    done = add("first.npy")
    assert (done.code, "cannot show which model they are of" in done.err) == (0, True)
    for model in (1, 2, 3):
        np.save(f"{model}.npy", outputs(model, memory=1.2))
    done = add(*(f"{model}.npy" for model in (1, 2, 3)))
    assert (done.code, "00000.npy" in done.err, "--model 4" in done.err) == (0, True, True), done.err
    assert load_bank("bank").finished().tolist() == [0, 1, 2, 3]
    Path("bank/outputs/00000.npy").unlink()
    done = add("first.npy", "--model", "4")
    assert (done.code, "00000.npy" in done.err) == (0, False), done.err
