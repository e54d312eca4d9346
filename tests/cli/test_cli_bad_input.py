"""What cannot be used is refused with one line that says so, before anything is trained or written."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.cli_runs import CLASSES, QUICK, RECORDS, content, jaxaudit, records


def refused(words: tuple[str, ...], *said: str) -> None:
    """The last line names all that it must, the others are talk, and nothing was written."""
    before = content(Path.cwd())
    done = jaxaudit("ks", *words)
    assert done.code == 2, done
    assert done.out == ""
    *talk, last = done.err.splitlines()
    assert last.startswith("Error: ")
    assert [each for each in said if each not in last] == [], last
    assert not any(line.startswith(("Error", "Traceback", "training")) for line in talk)
    assert content(Path.cwd()) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--query", "query.npz"), ("--query", "--calibration")),
        (("--calibration", "query.npz"), ("--query", "--calibration")),
        ((*QUICK, "--hidden", "12,many"), ("--hidden 12,many", "65536", "512,256,128")),
        ((*QUICK, "--target-data", "far.npz:0"), ("--target-data far.npz:0", "far.npz:0.5")),
        ((*QUICK, "--model", "resnet"), ("--model resnet ", "images", "mlp")),
        ((*QUICK, "--model", "resnet50x"), ("--model resnet50x", "mlp", "liu-cnn", "medical-cnn", "resnet-8-16")),
        ((*QUICK, "--optimizer", "lion"), ("--optimizer lion", "adam", "sgd", "package.module:function")),
        ((*QUICK, "--tests", "shaddow"), ("--tests", "shaddow", "shadow?")),
        ((*QUICK, "--tests", ","), ("--tests", "holdout", "shadow", "ema", "rho", "all")),
        ((*QUICK, "--tests", "rho,holdout"), ("--tests", "--holdout")),
        ((*QUICK, "--budget", "soon"), ("--budget soon", "10m", "none")),
        ((*QUICK, "--budget", "1s"), ("--budget 1s", "60s")),
        ((*QUICK, "--out", "query.npz/run"), ("--out query.npz/run", "query.npz ")),
        ((*QUICK, "--out", "."), ("--out .",)),
        ((*QUICK, "--query", "mnits"), ("mnits", "mnist")),
        ((*QUICK, "--query", "@train"), ("@train",)),
        ((*QUICK, "--query", "query.npz@"), ("query.npz@",)),
        ((*QUICK, "--query", "query.npz@test"), ("query.npz", "test")),
        ((*QUICK, "--query", "evil\nError: \x1b[31mname"), (r"--query evil\nError: \x1b[31mname",)),
        ((*QUICK, "--query", "acdc:somewhere"), ("acdc:somewhere", "acdc:FOLDER@STRENGTH")),
        ((*QUICK, "--query", "acdc:somewhere@-3"), ("acdc:somewhere@-3", "acdc:FOLDER@STRENGTH")),
    ],
)
def test_options(sets: Path, words: tuple[str, ...], said: tuple[str, ...]):
    refused(words, *said)


def probabilities(rows: int = RECORDS, columns: int = CLASSES) -> np.ndarray:
    scores = np.random.default_rng(5).random((rows, columns))
    return scores / scores.sum(axis=1, keepdims=True)


def with_value(value: float) -> np.ndarray:
    array = probabilities()
    array[7, 1] = value
    return array


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        (probabilities(RECORDS - 1), ("299", "query set", "300")),
        (probabilities(columns=CLASSES + 1), ("4", "query set", "3")),
        (probabilities().T, ("(3, 300)", "transpose")),
        (0.3 * probabilities(), ("probabilities", "logits")),
        (with_value(np.nan), ("1 row", "NaN", "row 8")),
        (with_value(np.inf), ("1 row", "NaN", "row 8")),
        (probabilities(0), ("empty",)),
        (np.arange(RECORDS) % CLASSES, ("labels",)),
        (np.array([[None] * CLASSES] * RECORDS), ("pickle",)),
    ],
)
def test_files_of_outputs(sets: Path, outputs: np.ndarray, said: tuple[str, ...]):
    np.save("t.npy", outputs, allow_pickle=True)
    refused((*QUICK, "--target", "t.npy"), "t.npy", *said)


def test_probabilities_that_are_none(sets: Path):
    np.save("t.npy", 9 * probabilities() - 4)
    refused((*QUICK, "--target", "t.npy", "--target-kind", "probabilities"), "t.npy", "row ", "[0, 1]")


def saved(name: str, inputs: np.ndarray, labels: np.ndarray, **more: np.ndarray) -> None:
    np.savez(name, allow_pickle=True, x=inputs, y=labels, **more)


INPUTS, LABELS = records(9, 0.0)
BROKEN = INPUTS.copy()
BROKEN[3, 2] = np.inf


@pytest.mark.parametrize(
    ("save", "said"),
    [
        (lambda: saved("c", INPUTS[:0], LABELS[:0]), ("c.npz", "no ")),
        (lambda: saved("c", BROKEN, LABELS), ("c.npz", "1 record", "NaN")),
        (lambda: saved("c", INPUTS, LABELS[:-1]), ("c.npz", "300", "299")),
        (
            lambda: saved("c", INPUTS, LABELS, class_names=np.array(["0", "1"])),
            ("c.npz", "100", "record 2"),
        ),
        (lambda: saved("c", INPUTS, LABELS.astype(object)), ("c.npz", "pickle")),
        (lambda: saved("c", INPUTS, np.minimum(LABELS, 1)), ("query.npz", "c.npz", "'2'")),
        (
            lambda: saved("c", INPUTS, np.where(LABELS == 1, 2, LABELS)),
            ("c.npz", "'1'", "query.npz"),
        ),
        (
            lambda: saved("c", INPUTS, np.arange(RECORDS) % 4),
            ("c.npz", "'3'", "query.npz", "--drop-unshared"),
        ),
        (
            lambda: saved("c", INPUTS, np.array(["cat", "dog", "cow"])[LABELS]),
            ("query.npz", "c.npz", "'0'", "'1'", "'2'", "'cat'"),
        ),
        (
            lambda: saved("c", INPUTS[:, 1:], LABELS),
            ("query.npz", "(12,)", "c.npz", "(11,)"),
        ),
        (lambda: Path("c.npz").write_bytes(b"PK\x03\x04 and then nothing"), ("c.npz",)),
    ],
)
def test_calibration_sets(sets: Path, save: Callable[[], object], said: tuple[str, ...]):
    save()
    refused((*QUICK, "--calibration", "c.npz"), *said)


def test_a_pickled_npy_is_never_loaded(sets: Path):
    class Evil:
        def __reduce__(self):
            return (Path("owned").touch, ())

    np.save("x.npy", np.array([Evil()] * 3), allow_pickle=True)
    np.save("y.npy", np.arange(3))
    refused((*QUICK, "--query", "x.npy"), "x.npy", "pickle")


def test_classes_the_query_set_lacks_are_dropped_when_asked(sets: Path):
    saved("c", INPUTS, np.arange(RECORDS) % 4)
    # Outputs for one record stop the run right after the sets are matched.
    np.save("t.npy", probabilities(1))
    refused((*QUICK, "--calibration", "c.npz", "--drop-unshared", "--target", "t.npy"), "t.npy", "1 row")


def test_overlap_is_refused_with_counts(sets: Path):
    (query, other), (classes, labels) = zip(records(2, 0.0), records(8, 0.5), strict=True)
    saved("c", np.concatenate([other, query[5:7]]), np.concatenate([labels, classes[5:7]]))
    said = ("2 of the 302", "c.npz", "query.npz", "5 = 300", "6 = 301", "--drop-overlap")
    refused((*QUICK, "--calibration", "c.npz"), *said)
    refused((*QUICK, "--calibration", "query.npz"), "300 of the 300", "query.npz")
    refused((*QUICK, "--calibration", "query.npz", "--drop-overlap"), "300", "query.npz")


def images(root: str, *sizes: tuple[int, int]) -> None:
    for index, size in enumerate(sizes):
        folder = Path(root, f"class{index % 2}")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng([len(root), index]).integers(0, 255, size).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")


def test_images_of_other_shapes(sets: Path):
    images("a", *[(6, 6)] * 4)
    images("bb", *[(5, 7)] * 4)
    images("odd", (6, 6), (6, 6), (6, 8), (6, 6))
    refused(
        ("--query", "a", "--calibration", "bb", "--image-size", "none"),
        *("(6, 6, 1)", "bb", "(5, 7, 1)", "--image-size"),
    )
    refused(("--query", "a", "--calibration", "odd", "--image-size", "none"), "2.png", "6x8")


def test_target_data_of_another_shape(sets: Path):
    saved("t", INPUTS[:, 1:], LABELS)
    refused((*QUICK, "--target-data", "t.npz"), "t.npz", "(11,)", "query.npz", "(12,)")
    saved("t", INPUTS, np.arange(RECORDS) % 4)
    refused((*QUICK, "--target-data", "t.npz"), "t.npz", "query.npz", "'3'")


def test_an_out_directory_that_cannot_be(sets: Path):
    Path("fixed").mkdir(mode=0o555)
    refused((*QUICK, "--out", "fixed/run"), "--out fixed/run")
    Path("old").mkdir()
    Path("old/result.json").touch()
    refused((*QUICK, "--out", "old"), "--out old")
    refused((*QUICK, "--out", "x" * 300), "--out xxx", "File name too long")
