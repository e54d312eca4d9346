"""`jaxaudit shadows add`: files of the wrong model, of two models at once, and those that do not show their model."""

from pathlib import Path

import numpy as np
import pytest
from support import banks
from test_cli_shadows import add, folder, good, not_added, outputs, train

from jaxaudit.data.bank.bank import load_bank

__all__ = ["folder"]
UNSHOWN = "cannot show which model they are of"


def test_outputs_of_another_model_are_refused_by_its_number(folder: Path):
    good()
    train(0, 1, 2, 3)
    for model in (4, 5, 10):
        np.save(f"{model}.npy", outputs(model))
    # As a shell sorts them.
    not_added("10.npy", "4.npy", said=("--model 10",))
    assert load_bank("bank").finished().tolist() == [0, 1, 2, 3]
    assert not Path("bank/lock").exists()
    # Two that were swapped.
    for file, other in (("4.npy", 5), ("5.npy", 4)):
        np.save(file, outputs(other))
    not_added("4.npy", "5.npy", said=("model 5, not of model 4",))
    assert add("5.npy").code == 0
    assert add("10.npy", "--model", "10").code == 0


def test_the_first_files_of_a_bank_are_held_against_one_another(folder: Path):
    """One alone may be taken for another's: nothing tells how difficult the records are."""
    good()
    files = [f"{model}.npy" for model in range(5)]
    for model, file in enumerate(files):
        np.save(file, outputs(model, memory=1.5))
    # None is added.
    not_added("1.npy", "0.npy", *files[2:], said=("--model 1",))
    assert add(*files).code == 0
    assert load_bank("bank").finished().tolist() == list(range(5))


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


def test_a_model_that_hardly_remembers_is_added_and_said_to_show_nothing(folder: Path):
    """In the place of another as in its own."""
    good()
    train(0, 1, 2)
    np.save("any.npy", outputs(5, memory=0.1))
    np.save("other.npy", outputs(6, memory=0.1))
    for words in (("any.npy", "--model", "3"), ("other.npy", "--model", "6")):
        done = add(*words)
        assert (done.code, f"{words[0]}: these outputs {UNSHOWN}" in done.err) == (0, True), done.err
    np.save("clear.npy", outputs(7))
    done = add("clear.npy", "--model", "7")
    assert (done.code, UNSHOWN in done.err) == (0, False)


def test_training_sets_of_others_cannot_show_it_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    bank = load_bank(banks.write_bank(tmp_path / "bank"))
    np.save("3.npy", banks.logits(3, bank.membership[3]))
    done = add("3.npy")
    assert (done.code, UNSHOWN in done.err, "not dealt by jaxaudit" in done.err) == (0, True, True)


def test_a_first_file_that_was_misplaced_is_named_when_others_are_there(folder: Path):
    """Alone it shows nothing: how difficult the records are hides what it remembers. It stops no other file."""
    good()
    np.save("first.npy", outputs(4, memory=1.2))
    done = add("first.npy")
    assert (done.code, UNSHOWN in done.err) == (0, True)
    for model in (1, 2, 3):
        np.save(f"{model}.npy", outputs(model, memory=1.2))
    done = add(*(f"{model}.npy" for model in (1, 2, 3)))
    assert (done.code, "00000.npy" in done.err, "--model 4" in done.err) == (0, True, True), done.err
    assert load_bank("bank").finished().tolist() == [0, 1, 2, 3]
    Path("bank/outputs/00000.npy").unlink()
    done = add("first.npy", "--model", "4")
    assert (done.code, "00000.npy" in done.err) == (0, False), done.err
