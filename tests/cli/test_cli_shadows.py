"""`jaxaudit shadows`: plan, grow, add, show; what is refused, and that nothing is ever half there."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support import banks
from support.banks import softmax
from support.cli_runs import CLASSES, Done, content, jaxaudit, process, records

import jaxaudit as ja
from jaxaudit.cli.ks.command import OF_BANK
from jaxaudit.data import load
from jaxaudit.data.bank import writing
from jaxaudit.data.bank.bank import load_bank
from jaxaudit.runs.lock import working_in

N = 60
SETS = ("--query", "q.npz", "--holdout", "h.npz", "--calibration", "c.npz")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`q.npz`, `h.npz`, `c.npz` of 60 records each, of one domain."""
    monkeypatch.chdir(tmp_path)
    inputs, labels = records(2, 0.0, 3 * N)
    for place, name in enumerate("qhc"):
        part = slice(place * N, (place + 1) * N)
        groups = np.array([f"{name} {number // 3}" for number in range(N)])
        np.savez(f"{name}.npz", x=inputs[part], y=labels[part], who=groups)
    return tmp_path


def plan(*words: str, out: str = "bank", models: int = 20) -> Done:
    return jaxaudit("shadows", "plan", *(words or SETS), "--models", f"{models}", "--out", out)


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
    assert process("shadows", "plan", *SETS, "--models", "20", "--seed", "5", "--out", "bank", cwd=folder).code == 0
    assert {path.name for path in Path("bank").iterdir()} == {
        *("bank.json", "labels.npy", "membership.npy", "seeds.npy", "outputs")
    }
    said = json.loads(Path("bank/bank.json").read_text())
    assert (said["format"], said["outputs"], said["records"], said["models"], said["seed"]) == (1, "logits", 180, 20, 5)
    assert (said["classes"], said["class_names"], said["queries"]) == (CLASSES, ["0", "1", "2"], 1)
    assert said["counts"] == {"query": N, "holdout": N, "calibration": N}
    names = {"query": "q", "holdout": "h", "calibration": "c"}
    assert said["hashes"] == {role: load(f"{name}.npz").content_hash for role, name in names.items()}
    assert said["versions"].keys() == {"jaxaudit", "numpy"}
    membership, seeds = np.load("bank/membership.npy"), np.load("bank/seeds.npy")
    assert (membership.dtype, membership.shape, seeds.dtype, seeds.shape) == (bool, (20, 180), np.uint32, (20,))
    assert set(membership[:, : 2 * N].sum(axis=1)) == {N}
    assert set(membership[:, 2 * N :].sum(axis=1)) == {40}
    np.testing.assert_array_equal(np.load("bank/labels.npy"), np.concatenate([np.load(f"{x}.npz")["y"] for x in "qhc"]))
    assert {path.stat().st_mode & 0o777 for path in Path("bank").glob("*.*")} == {0o600}


def test_the_command_in_the_description_makes_the_same_plan(folder: Path):
    good(*SETS, "--designs", "small,wide", "--recipe", "ResNet-18, 30 epochs", "--outputs", "probabilities")
    words = json.loads(Path("bank/bank.json").read_text())["command"]
    assert jaxaudit(*words[1:], "--out", "again").code == 0
    assert content(Path("bank")) == content(Path("again"))
    assert np.load("bank/designs.npy").tolist() == [0, 1] * 10


def test_defaults_are_what_the_tests_take(folder: Path):
    for words, models in ((SETS, 40), (SETS[:4], 40), ((*SETS[:2], *SETS[4:]), 77)):
        out = f"bank{len(words)}{models}"
        assert jaxaudit("shadows", "plan", *words, "--out", out).code == 0
        assert len(load_bank(out)) == models
        assert any(test["complete"] is False and test["usual"] for test in shown(out)["tests"].values())


def test_designs_take_turns_within_each_kind_of_model(folder: Path):
    good(*SETS[:2], *SETS[4:], "--designs", "a,b", models=24)
    used = np.load("bank/membership.npy")[:, :N].sum(axis=1)
    designs = np.load("bank/designs.npy")
    for count in (0, N // 2, N):
        assert abs((designs[used == count] * 2 - 1).sum()) <= 1


def test_a_bank_grows(folder: Path):
    good(models=12)
    before = content(folder)
    train(0, 3)
    # The same again changes nothing.
    said = Path("bank/bank.json").read_bytes()
    good(models=12)
    assert Path("bank/bank.json").read_bytes() == said
    rows, seeds = np.load("bank/membership.npy"), np.load("bank/seeds.npy")
    out = good(models=30).out
    assert "18 of them new" in out
    np.testing.assert_array_equal(np.load("bank/membership.npy")[:12], rows)
    np.testing.assert_array_equal(np.load("bank/seeds.npy")[:12], seeds)
    assert shown()["finished"] == 2
    good(models=30, out="whole")
    for name in ("membership.npy", "seeds.npy", "labels.npy", "bank.json"):
        assert Path("bank", name).read_bytes() == Path("whole", name).read_bytes()
    assert before["q.npz"] == Path("q.npz").read_bytes()


def test_growing_keeps_what_was_not_said_again(folder: Path):
    good(*SETS, "--recipe", "mine", models=12)
    done = jaxaudit("shadows", "plan", *SETS, "--out", "bank")
    assert done.code == 0
    assert (load_bank("bank").description.models, load_bank("bank").description.recipe) == (12, "mine")


OTHERS = {
    "seed": (*SETS, "--seed", "8"),
    "query set": ("--query", "h.npz", "--holdout", "q.npz", "--calibration", "c.npz"),
    "calibration set": SETS[:4],
    "outputs": (*SETS, "--outputs", "probabilities"),
    "views": (*SETS, "--views", "2"),
    "groups": (*SETS, "--groups", "who", "--holdout-groups", "who"),
    "designs": (*SETS, "--designs", "a,b"),
    "recipe": (*SETS, "--recipe", "another"),
}


@pytest.mark.parametrize(("name", "words"), OTHERS.items(), ids=list(OTHERS))
def test_another_plan_is_refused_by_what_differs(folder: Path, name: str, words: tuple[str, ...]):
    good(models=12)
    before = content(folder)
    done = plan(*words, models=20)
    assert (done.code, done.out) == (2, "")
    assert name in done.err
    assert content(folder) == before


def test_a_bank_neither_shrinks_nor_takes_rows_that_were_changed(folder: Path):
    good(models=12)
    assert "12 models" in plan(models=11).err
    rows = np.load("bank/membership.npy")
    rows[3] = rows[4]
    np.save("bank/membership.npy", rows)
    before = content(folder)
    done = plan(models=20)
    assert (done.code, "membership.npy" in done.err) == (2, True)
    assert content(folder) == before


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


def test_nothing_of_a_plan_is_left_where_it_fails(folder: Path, monkeypatch: pytest.MonkeyPatch):
    Path("taken").mkdir()
    Path("taken/notes.txt").write_text("mine")
    before = content(folder)
    for words, out in (
        (SETS, "taken"),
        (SETS, "q.npz"),
        (("--query", "q.npz"), "new"),
        (SETS[2:], "new"),
        (("--query", "gone.npz", *SETS[2:]), "new"),
        ((*SETS, "--groups", "who"), "new"),
        ((*SETS, "--designs", "a,,b"), "new"),
        ((*SETS, "--recipe", "x" * 20_000), "new"),
    ):
        done = plan(*words, out=out)
        assert (done.code, done.out) == (2, ""), words
        assert "Error" in done.err

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    assert plan(out="new").code == 2
    assert content(folder) == before


def test_a_plan_that_was_killed_is_made_by_the_same_command(folder: Path):
    """It leaves drafts and some arrays, and no bank."""
    good(out="whole")
    Path("bank/unfinished").mkdir(parents=True)
    Path("bank/unfinished/.writing-0").write_bytes(b"half")
    Path("bank/labels.npy").write_bytes(b"half")
    assert jaxaudit("shadows", "show", "bank").code == 2
    good()
    assert content(Path("bank")) == content(Path("whole"))


def test_groups_stay_whole(folder: Path):
    good(*SETS, "--groups", "who", "--holdout-groups", "who")
    bank = load_bank("bank")
    assert bank.groups is not None
    numbers = np.concatenate(bank.groups)
    for row in bank.membership[:, : 2 * N]:
        assert not np.intersect1d(numbers[row], numbers[~row]).size
    assert shown()["groups"] == {"query": 20, "holdout": 20}
    assert "q 1" not in Path("bank/bank.json").read_text()


def copied(path: str, of: str, places: tuple[int, ...]) -> None:
    """The file with the first records of another in these places."""
    with np.load(path) as found, np.load(of) as other:
        arrays = dict(found)
        arrays["x"] = arrays["x"].copy()
        arrays["x"][list(places)] = other["x"][: len(places)]
    np.savez(path, **arrays)


@pytest.mark.parametrize(("path", "of"), [("q", "q"), ("h", "q"), ("c", "q"), ("c", "h"), ("c", "c")])
def test_a_record_that_occurs_twice_is_refused_or_dropped(folder: Path, path: str, of: str):
    copied(f"{path}.npz", f"{of}.npz", (7, 9))
    done = plan()
    assert (done.code, "--drop-overlap" in done.err) == (2, True)
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


def test_copies_that_are_dealt_together_may_stay(folder: Path):
    copied("q.npz", "q.npz", (1, 2))
    with np.load("q.npz") as found:
        arrays = dict(found)
    arrays["x"][1], arrays["x"][2] = arrays["x"][0], arrays["x"][0]
    np.savez("q.npz", **arrays)
    assert plan().code == 2
    good(*SETS, "--groups", "who", "--holdout-groups", "who")
    assert not load_bank("bank").dropped.any()


def test_classes_that_the_query_set_lacks_are_left_out(folder: Path):
    with np.load("c.npz") as found:
        names = np.array(["b", "a", "z"])
        np.savez("c.npz", x=found["x"], y=found["y"], class_names=names)
    for name in "qh":
        with np.load(f"{name}.npz") as found:
            np.savez(f"{name}.npz", x=found["x"], y=found["y"] % 2, class_names=np.array(["a", "b"]))
    assert plan().code == 2
    good(*SETS, "--drop-unshared")
    bank = load_bank("bank")
    with np.load("c.npz") as found:
        np.testing.assert_array_equal(bank.dropped[2 * N :], found["y"] == 2)
        np.testing.assert_array_equal(bank.labels[2 * N :], np.array([1, 0, -1])[found["y"]])


def test_files_are_added_in_order_whatever_their_form(folder: Path):
    good()
    np.save("first.npy", outputs(0).astype(np.float32))
    np.savez("second.npz", logits=outputs(1))
    np.savetxt("third.csv", outputs(2), delimiter=",", header="0,1,2", comments="")
    np.save("ninth.npy", outputs(9))
    done = process("shadows", "add", "bank", "first.npy", "second.npz", "third.csv", cwd=folder)
    assert (done.code, done.err) == (0, "")
    assert jaxaudit("shadows", "add", "bank", "ninth.npy", "--model", "9").code == 0
    bank = load_bank("bank")
    assert bank.finished().tolist() == [0, 1, 2, 9]
    for model in (0, 1, 2, 9):
        found = np.load(f"bank/outputs/{model:05}.npy")
        assert (found.dtype, found.shape) == (np.float32, (3 * N, CLASSES))
        np.testing.assert_allclose(found, outputs(model), rtol=1e-6)
    assert (Path("bank/outputs/00000.npy").stat().st_mode & 0o777) == 0o600


def test_the_command_can_be_repeated(folder: Path):
    good()
    train(0)
    for model in (1, 2):
        np.save(f"{model}.npy", outputs(model))
    assert jaxaudit("shadows", "add", "bank", "1.npy").code == 0
    done = jaxaudit("shadows", "add", "bank", "1.npy", "2.npy")
    assert (done.code, "1.npy: is there already as model 1" in done.out) == (0, True)
    assert "3 of 20 models have outputs. What is missing:" in done.out
    assert load_bank("bank").finished().tolist() == [0, 1, 2]
    # Nor is there a second model of the same file.
    assert jaxaudit("shadows", "add", "bank", "2.npy", "--model", "2").code == 0
    assert load_bank("bank").finished().tolist() == [0, 1, 2]


def test_one_column_is_enough_for_two_classes(folder: Path):
    for name in "qhc":
        with np.load(f"{name}.npz") as found:
            np.savez(f"{name}.npz", x=found["x"], y=found["y"] % 2)
    good(*SETS, "--outputs", "probabilities")
    second = np.linspace(0.1, 0.9, 3 * N)
    np.savetxt("one.csv", second)
    assert jaxaudit("shadows", "add", "bank", "one.csv").code == 0
    np.testing.assert_allclose(np.load("bank/outputs/00000.npy"), np.stack([1 - second, second], axis=1), rtol=1e-5)
    good(*SETS, out="logits")
    assert "bank of logits" in jaxaudit("shadows", "add", "logits", "one.csv").err
    np.savetxt("logits.csv", 9 * second - 5)
    assert jaxaudit("shadows", "add", "logits", "logits.csv").code == 0
    np.testing.assert_array_equal(np.load("logits/outputs/00000.npy")[:, 0], np.zeros(3 * N))


def test_views_are_added_from_npy_alone(folder: Path):
    good(*SETS, "--views", "2")
    views = np.stack([outputs(0), outputs(0) + 0.1], axis=1)
    np.save("views.npy", views)
    np.savez("views.npz", logits=views)
    assert jaxaudit("shadows", "add", "bank", "views.npz").code == 2
    assert jaxaudit("shadows", "add", "bank", "views.npy").code == 0
    assert np.load("bank/outputs/00000.npy").shape == (3 * N, 2, CLASSES)


REFUSED = {
    "rows too few": (lambda good: good[1:], "179 rows"),
    "columns too many": (lambda good: np.c_[good, good], "6 columns"),
    "NaN": (lambda good: np.where(np.arange(len(good))[:, None] == 5, np.nan, good), "NaN"),
    "probabilities": (softmax, "bank of logits"),
    "labels": (lambda good: good.argmax(axis=1), "confidences"),
    "views": (lambda good: good[:, None], "shape"),
}


@pytest.mark.parametrize(("bad", "why"), REFUSED.values(), ids=list(REFUSED))
def test_other_outputs_are_refused(folder: Path, bad: Any, why: str):
    good()
    np.save("bad.npy", bad(outputs(0)))
    before = content(Path("bank/outputs"))
    done = jaxaudit("shadows", "add", "bank", "bad.npy")
    assert (done.code, done.out) == (2, "")
    assert why in done.err
    assert "--target-kind" not in done.err
    assert content(Path("bank/outputs")) == before


def test_logits_are_refused_by_a_bank_of_probabilities(folder: Path):
    good(*SETS, "--outputs", "probabilities")
    np.save("logits.npy", outputs(0))
    np.save("right.npy", softmax(outputs(0)))
    assert "bank of probabilities" in jaxaudit("shadows", "add", "bank", "logits.npy").err
    assert jaxaudit("shadows", "add", "bank", "right.npy").code == 0


def test_a_place_that_is_taken_or_not_there_is_refused(folder: Path):
    good()
    train(*range(20))
    np.save("other.npy", outputs(3) + 1)
    for words in (("--model", "3"), ("--model", "20"), ()):
        assert jaxaudit("shadows", "add", "bank", "other.npy", *words).code == 2
    assert jaxaudit("shadows", "add", "bank", "other.npy", "other.npy", "--model", "3").code == 2
    assert jaxaudit("shadows", "add", "bank", "gone.npy").code == 2
    assert jaxaudit("shadows", "add", "nowhere", "other.npy").code == 2
    np.testing.assert_array_equal(np.load("bank/outputs/00003.npy"), outputs(3))


def test_one_process_at_a_time_writes(folder: Path):
    good()
    np.save("0.npy", outputs(0))
    with working_in(Path("bank")):
        for words in (("add", "bank", "0.npy"), ("plan", *SETS, "--models", "30", "--out", "bank")):
            done = process("shadows", *words, cwd=folder)
            assert (done.code, f"pid {os.getpid()}" in done.err) == (2, True)
        # To look is no writing.
        assert process("shadows", "show", "bank", cwd=folder).code == 0
    assert process("shadows", "add", "bank", "0.npy", cwd=folder).code == 0


def test_no_link_is_followed(folder: Path):
    good()
    np.save("0.npy", outputs(0))
    Path("elsewhere").mkdir()
    Path("bank/outputs").rmdir()
    Path("bank/outputs").symlink_to(folder / "elsewhere")
    assert jaxaudit("shadows", "add", "bank", "0.npy").code == 2
    assert not list(Path("elsewhere").iterdir())
    Path("bank/outputs").unlink()
    Path("bank/lock").unlink(missing_ok=True)
    Path("bank/lock").symlink_to(folder / "elsewhere" / "lock")
    assert jaxaudit("shadows", "add", "bank", "0.npy").code == 2
    assert not list(Path("elsewhere").iterdir())


ADDING = """
import sys, time
from pathlib import Path
import jaxaudit.data.bank.writing as writing

usual = writing.np.lib.format.write_array

def half(file, array, **named):
    usual(file, array[: len(array) // 2], **named)
    file.flush()
    Path("begun").touch()
    time.sleep(60)

writing.np.lib.format.write_array = half
from jaxaudit.cli import main
sys.argv = ["jaxaudit", "shadows", "add", "bank", "0.npy", "1.npy"]
main()
"""


@pytest.mark.outer
def test_a_kill_within_add_leaves_no_half_file(folder: Path):
    good()
    for model in (0, 1):
        np.save(f"{model}.npy", outputs(model))
    run = subprocess.Popen([sys.executable, "-c", ADDING], cwd=folder)
    try:
        deadline = time.monotonic() + 120
        while not Path("begun").exists() and time.monotonic() < deadline:
            assert run.poll() is None
            time.sleep(0.05)
        # It is the only one, and what it has written does not count.
        assert process("shadows", "add", "bank", "1.npy", cwd=folder).code == 2
        assert shown()["finished"] == 0
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()
    assert [path.name.startswith(".writing-") for path in Path("bank/outputs").iterdir()] == [True]
    assert shown()["missing"] == list(range(20))
    assert process("shadows", "add", "bank", "0.npy", "1.npy", cwd=folder).code == 0
    assert shown()["finished"] == 2


def test_what_is_there_is_shown(folder: Path):
    good(*SETS, "--recipe", "by hand", models=30)
    train(*range(20))
    np.save("bank/outputs/00021.npy", outputs(21)[1:])
    done = process("shadows", "show", "bank", cwd=folder)
    assert (done.code, done.err) == (0, "")
    found = shown()
    assert found["schema"] == "jaxaudit.shadows/1"
    assert (found["models"], found["finished"], found["missing"]) == (30, 20, list(range(20, 30)))
    assert list(found["refused"]) == ["21"]
    assert found["recipe"] == "by hand"
    assert found["bytes"] == sum(
        path.stat().st_size for path in Path("bank").rglob("*") if path.is_file() and path.suffix in (".npy", ".json")
    )
    right = [
        (outputs(m).argmax(axis=1) == load_bank("bank").labels)[load_bank("bank").membership[m]] for m in range(20)
    ]
    assert found["training_accuracy"] == pytest.approx({f"{model}": each.mean() for model, each in enumerate(right)})
    assert {name: each["possible"] for name, each in found["tests"].items()} == {
        "holdout": True,
        "reference": False,
        "shadow": False,
    }
    for words in (
        "20 of 30",
        "by hand",
        "20, 21, 22, 23, 24 and 5 more",
        f"model {np.argmin([r.mean() for r in right])}",
    ):
        assert words in done.out
    assert found["next"] in done.out


@pytest.mark.skipif(not hasattr(os.stat_result, "st_blocks"), reason="the system does not tell what a disk holds")
def test_a_bank_of_holes_is_not_read(folder: Path):
    """Files of a few bytes that claim a gigabyte; as many models of few records are read a thousand at a time."""
    found = {}
    for count, models in ((1_200, 10**6), (90, 10**6)):
        bank = banks.write_bank(folder / f"of {count}", 0, models=models, records=count, counts=None)
        np.save(bank / "labels.npy", np.zeros(count, int))
        with (bank / "membership.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "|b1", "fortran_order": False, "shape": (models, count)}
            )
            file.write(bytes([1]))
            file.truncate(file.tell() - 1 + models * count)
        start = time.process_time()
        found[count] = jaxaudit("shadows", "show", str(bank))
        assert time.process_time() - start < 30
    assert (found[1_200].code, found[1_200].out, "holes" in found[1_200].err) == (2, "", True)
    assert (found[90].code, "0 of 1000000" in found[90].out) == (0, True)


def test_the_command_that_is_shown_adds_what_is_missing(folder: Path):
    good()
    train(*range(19))
    np.save("last.npy", outputs(19))
    words = shlex.split(shown()["next"])
    assert words[:3] == ["jaxaudit", "shadows", "add"]
    assert jaxaudit(*["last.npy" if word == "FILE" else word for word in words[1:]]).code == 0
    # All are finished, and the holdout test takes 40.
    words = shlex.split(shown()["next"])
    assert words[:3] == ["jaxaudit", "shadows", "plan"]
    assert jaxaudit(*words[1:]).code == 0
    assert len(load_bank("bank")) == 40
    train(*range(20, 40))
    assert shown()["next"] == ""


def test_a_strangers_bank_names_no_other_command(folder: Path):
    good(models=3)
    train(0, 1, 2)
    said = json.loads(Path("bank/bank.json").read_text())
    said["command"] = ["rm", "-rf", "~"]
    said["recipe"] = "\x1b[31mred"
    Path("bank/bank.json").write_text(json.dumps(said))
    done = jaxaudit("shadows", "show", "bank")
    assert done.code == 0
    assert "rm -rf" not in done.out
    assert "\x1b" not in done.out
    said["command"] = ["jaxaudit", "shadows", "plan", "--query", "$(rm -rf ~)", "; rm"]
    Path("bank/bank.json").write_text(json.dumps(said))
    words = shlex.split(shown()["next"])
    assert words[3:6] == ["--query", "$(rm -rf ~)", "; rm"]


def test_a_damaged_file_is_replaced_when_its_model_is_named(folder: Path):
    good(models=3)
    train(0, 1, 2)
    path = Path("bank/outputs/00001.npy")
    path.write_bytes(path.read_bytes()[:-100])
    found = shown()
    assert (found["missing"], found["next"]) == ([1], "jaxaudit shadows add bank FILE --model 1")
    np.save("again.npy", outputs(1))
    assert jaxaudit("shadows", "add", "bank", "again.npy").code == 2
    assert jaxaudit("shadows", "add", "bank", "again.npy", "--model", "1").code == 0
    assert shown()["missing"] == []


def test_the_holdout_test_can_be_made_with_what_python_reads(folder: Path):
    """A target that was trained on the query set is found, and one that was trained on neither set is not."""
    good(models=40)
    train(*range(40))
    bank = ja.load_bank("bank")
    shadows, asked = ja.bank_log_odds(bank), slice(0, 2 * N)
    assert (ja.bank_accuracy(bank) > 0.9).all()
    rng = np.random.default_rng(3)
    p_values = []
    for used in (N, 0):
        logits = rng.normal(size=(2 * N, CLASSES))
        own = np.arange(2 * N), bank.labels[asked]
        logits[own] += np.random.default_rng(99).normal(1, 2, 3 * N)[asked] + 6.0 * (np.arange(2 * N) < used)
        odds = ja.metrics.log_odds(logits, bank.labels[asked])
        usage = ja.metrics.holdout_test(
            jax.random.key(1), odds[:N], odds[N:], shadows[:, asked], bank.membership[:, asked]
        )
        p_values.append(usage.p_never)
    assert p_values[0] <= 0.001
    assert p_values[1] > 0.05


FLAG = re.compile(r"--[a-z][a-z-]*")


def test_what_is_said_where_a_bank_judges_names_no_option_without_effect(folder: Path):
    """Its models fit badly, so that there is advice; and the command that repeats the run is told by nothing else."""
    good(models=20)
    for model in range(20):
        np.save(f"bank/outputs/{model:05}.npy", outputs(model, memory=0))
    np.save("on_q.npy", outputs(0, memory=0)[:N])
    np.save("on_h.npy", outputs(0, memory=0)[N : 2 * N])
    words = ("ks", "--shadows", "bank", "--target", "on_q.npy", "--holdout-target", "on_h.npy")
    done = jaxaudit(*words, "--json")
    (target,), provenance = done.result["targets"], done.result["provenance"]
    useful = {f"--{name.replace('_', '-')}" for name in OF_BANK}
    assert set(provenance["options"]) <= {flag[2:].replace("-", "_") for flag in useful}
    assert set(FLAG.findall(" ".join(provenance["command"]))) <= useful
    assert "under 90%" in json.dumps(target)
    assert set(FLAG.findall(json.dumps(target))) <= useful
    again = jaxaudit(*provenance["command"][1:], "--json").result
    assert (again["targets"], again["provenance"]["command"]) == ([target], provenance["command"])
