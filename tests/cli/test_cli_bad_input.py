"""What cannot be used is refused with one line that says so, before anything is trained or written."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.cli_runs import CLASSES, QUICK, RECORDS, content, jaxaudit, records


def refused(words: tuple[str, ...], message: str) -> None:
    before = content(Path.cwd())
    done = jaxaudit("ks", *words)
    assert done.code == 2, done
    assert done.out == ""
    *talk, last = done.err.splitlines()
    assert re.fullmatch(f"Error: {message}", last), last
    assert not any(line.startswith(("Error", "Traceback", "training")) for line in talk)
    assert content(Path.cwd()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--query", "query.npz"), r"--query needs --calibration: shadow models are trained on both sets\. Give .*"),
        (("--calibration", "query.npz"), r"--calibration needs --query: .*"),
        ((*QUICK, "--image-size", "big"), r"--image-size big must be HEIGHTxWIDTH, such as 28x28, or none .*"),
        ((*QUICK, "--image-size", "0x28"), r"--image-size 0x28 must be .*"),
        ((*QUICK, "--image-size", "28x²8"), r"--image-size 28x²8 must be .*"),
        (
            (*QUICK, "--hidden", "12,many"),
            r"--hidden 12,many must be whole numbers from 1 to 65536 .* such as 512,256,128\.",
        ),
        ((*QUICK, "--hidden", "12,0"), r"--hidden 12,0 must be .*"),
        ((*QUICK, "--learning-rate", "0"), r"--learning-rate must be above 0, got 0\."),
        ((*QUICK, "--learning-rate", "nan"), r"--learning-rate must be above 0, got nan\."),
        ((*QUICK, "--learning-rate", "inf"), r"--learning-rate must be above 0, got inf\."),
        ((*QUICK, "--subsample", "0"), r"--subsample must be above 0 and at most 1, got 0\."),
        ((*QUICK, "--subsample", "1.5"), r"--subsample must be above 0 and at most 1, got 1.5\."),
        ((*QUICK, "--subsample", "nan"), r"--subsample must be above 0 and at most 1, got nan\."),
        ((*QUICK, "--level", "0"), r"--level must be between 0 and 1, such as 0.95, got 0\."),
        ((*QUICK, "--level", "1"), r"--level must be between 0 and 1, such as 0.95, got 1\."),
        ((*QUICK, "--min-accuracy", "-0.1"), r"--min-accuracy must be from 0 to 1, such as 0.9, got -0.1\."),
        ((*QUICK, "--min-accuracy", "90"), r"--min-accuracy must be from 0 to 1, such as 0.9, got 90\."),
        ((*QUICK, "--target-data", "far.npz:0"), r"--target-data far.npz:0: the fraction must be .* far.npz:0.5\."),
        ((*QUICK, "--target-data", "far.npz:1.01"), r"--target-data far.npz:1.01: the fraction must be above 0 .*"),
        ((*QUICK, "--target-data", "far.npz:nan"), r"--target-data far.npz:nan: the fraction must be above 0 .*"),
        (
            (*QUICK, "--target-data", "nowhere.npz"),
            r"--target-data nowhere.npz: there is no such file or folder; .*",
        ),
        ((*QUICK, "--target", "nowhere.npz"), r"--target nowhere.npz: there is no such file or folder; .*"),
        ((*QUICK, "--model", "resnet"), r"--model resnet is not one of mlp, liu-cnn, medical-cnn; .*"),
        ((*QUICK, "--out", "query.npz"), r"--out query.npz is a file; name a directory that does not exist yet\."),
        ((*QUICK, "--out", "query.npz/run"), r"--out query.npz/run cannot be written: .*query.npz is a file; .*"),
        ((*QUICK, "--out", "."), r"--out . already holds other files; .*"),
        ((*QUICK, "--query", "mnits"), r"`mnits` is no file or folder here .* Did you mean .*mnist.*"),
        ((*QUICK, "--query", "@train"), r"`@train` names no data set; .*"),
        ((*QUICK, "--query", "query.npz@"), r"`query.npz@` has nothing after the '@'; .*"),
        ((*QUICK, "--query", "query.npz@test"), r"query.npz.*test.*"),
        (
            (*QUICK, "--query", "evil\nError: \x1b[31mname"),
            r"--query evil\\nError: \\x1b\[31mname: there .*",
        ),
        ((*QUICK, "--query", "acdc:somewhere"), r"acdc:somewhere must be acdc:FOLDER@STRENGTH, .*"),
        ((*QUICK, "--query", "acdc:somewhere@strong"), r"acdc:somewhere@strong must be acdc:FOLDER@STRENGTH, .*"),
        ((*QUICK, "--query", "acdc:somewhere@-3"), r"acdc:somewhere@-3 must be acdc:FOLDER@STRENGTH, .*"),
    ],
)
def test_options(sets: Path, words: tuple[str, ...], message: str):
    refused(words, message)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seed", "-1"), "--seed"),
        (("--seed", str(2**32)), "--seed"),
        (("--seed", "seven"), "--seed"),
        (("--epochs", "0"), "--epochs"),
        (("--batch-size", "0"), "--batch-size"),
        (("--replicates", "0"), "--replicates"),
        (("--controls", "-1"), "--controls"),
        (("--width", "0"), "--width"),
        (("--target-kind", "guess"), "--target-kind"),
        (("--optimizer", "lion"), "--optimizer"),
        (("--fail-on", "forget"), "--fail-on"),
        (("--fast",), "--fast"),
        (("stray",), "stray"),
    ],
)
def test_flags_are_refused_by_the_parser(sets: Path, words: tuple[str, ...], said: str):
    before = content(sets)
    done = jaxaudit("ks", *QUICK, *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Usage: " in done.err
    assert "Traceback" not in done.err
    assert content(sets) == before


def test_an_unknown_command():
    done = jaxaudit("kss")
    assert (done.code, done.out) == (2, "")
    assert "kss" in done.err


def probabilities(rows: int = RECORDS, columns: int = CLASSES) -> np.ndarray:
    scores = np.random.default_rng(5).random((rows, columns))
    return scores / scores.sum(axis=1, keepdims=True)


def with_value(value: float) -> np.ndarray:
    array = probabilities()
    array[7, 1] = value
    return array


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (probabilities(RECORDS - 1), rf"t.npy: has {RECORDS - 1} rows but the query set {RECORDS} records; .*"),
        (probabilities(columns=CLASSES + 1), rf"t.npy: has {CLASSES + 1} columns but the query set {CLASSES} .*"),
        (probabilities().T, rf"t.npy: has shape \({CLASSES}, {RECORDS}\), one row a class; transpose it .*"),
        (0.3 * probabilities(), r"t.npy: neither probabilities nor logits: .*"),
        (with_value(np.nan), r"t.npy: 1 rows hold NaN or infinite values \(first: row 8\); did the model diverge\?"),
        (with_value(np.inf), r"t.npy: 1 rows hold NaN or infinite values \(first: row 8\); did the model diverge\?"),
        (probabilities(0), r"t.npy: is empty; did the model write its outputs\?"),
        (np.arange(RECORDS) % CLASSES, r"t.npy: these are predicted labels, but the method needs confidences; .*"),
        (np.array([[None] * CLASSES] * RECORDS), r"t.npy: .*pickle.*"),
    ],
)
def test_files_of_outputs(sets: Path, outputs: np.ndarray, message: str):
    np.save("t.npy", outputs, allow_pickle=True)
    refused((*QUICK, "--target", "t.npy"), message)


def test_probabilities_that_are_none(sets: Path):
    np.save("t.npy", 9 * probabilities() - 4)
    refused((*QUICK, "--target", "t.npy", "--target-kind", "probabilities"), r"t.npy: row \d+ leaves \[0, 1\], .*")


def saved(name: str, inputs: np.ndarray, labels: np.ndarray, **more: np.ndarray) -> None:
    np.savez(name, allow_pickle=True, x=inputs, y=labels, **more)


INPUTS, LABELS = records(9, 0.0)
BROKEN = INPUTS.copy()
BROKEN[3, 2] = np.inf


@pytest.mark.parametrize(
    ("save", "message"),
    [
        (lambda: saved("c", INPUTS[:0], LABELS[:0]), r"c.npz.*(no records|no labels).*"),
        (lambda: saved("c", BROKEN, LABELS), r"c.npz: 1 records hold NaN or infinite values; clean or drop .*"),
        (lambda: saved("c", INPUTS, LABELS[:-1]), r"c.npz: 300 inputs but labels of shape \(299,\); .*"),
        (
            lambda: saved("c", INPUTS, LABELS, class_names=np.array(["0", "1"])),
            r"c.npz, labels: 100 labels lie outside the 2 named classes \(first: record 2\); .*",
        ),
        (lambda: saved("c", INPUTS, LABELS.astype(object)), r"c.npz.*pickle.*"),
        (lambda: saved("c", INPUTS, np.minimum(LABELS, 1)), r"the classes of query.npz and c.npz differ: .*'2'.*"),
        (
            lambda: saved("c", INPUTS, np.where(LABELS == 1, 2, LABELS)),
            r"c.npz has no record of class '1', which query.npz has: its confidence cannot be calibrated; .*",
        ),
        (
            lambda: saved("c", INPUTS, np.arange(RECORDS) % 4),
            r"c.npz has records of class '3', of which query.npz has none; use --drop-unshared to leave them out .*",
        ),
        (
            lambda: saved("c", INPUTS, np.array(["cat", "dog", "cow"])[LABELS]),
            r"the classes of query.npz and c.npz differ: only query.npz has '0', '1', '2' and only c.npz has 'cat', .*",
        ),
        (
            lambda: saved("c", INPUTS[:, 1:], LABELS),
            r"query.npz has float32 records of shape \(12,\) but c.npz has float32 records of shape \(11,\); .*",
        ),
        (lambda: Path("c.npz").write_bytes(b"PK\x03\x04 and then nothing"), r".*c.npz.*"),
    ],
)
def test_calibration_sets(sets: Path, save: Callable[[], object], message: str):
    save()
    refused((*QUICK, "--calibration", "c.npz"), message)


def test_a_pickled_npy_is_never_loaded(sets: Path):
    class Evil:
        def __reduce__(self):
            return (Path("owned").touch, ())

    np.save("x.npy", np.array([Evil()] * 3), allow_pickle=True)
    np.save("y.npy", np.arange(3))
    refused((*QUICK, "--query", "x.npy"), r".*x.npy.*pickle.*")


def test_classes_the_query_set_lacks_are_dropped_when_asked(sets: Path):
    saved("c", INPUTS, np.arange(RECORDS) % 4)
    # Outputs for one record stop the run right after the sets are matched.
    np.save("t.npy", probabilities(1))
    refused((*QUICK, "--calibration", "c.npz", "--drop-unshared", "--target", "t.npy"), r"t.npy: has 1 rows .*")


def overlapping() -> None:
    query, other = records(2, 0.0), records(8, 0.5)
    inputs, labels = np.concatenate([other[0], query[0][5:7]]), np.concatenate([other[1], query[1][5:7]])
    saved("c", inputs, labels)


def test_overlap_is_refused_with_counts(sets: Path):
    overlapping()
    refused(
        (*QUICK, "--calibration", "c.npz"),
        r"2 of the 302 records of c.npz also occur in query.npz \(first, record of .*, counted from 0: 5 = 300, "
        r"6 = 301\); the method needs disjoint sets: use --drop-overlap to remove them from the calibration set\.",
    )
    refused((*QUICK, "--calibration", "query.npz"), r"300 of the 300 records of query.npz also occur .*")
    refused((*QUICK, "--calibration", "query.npz", "--drop-overlap"), r"all 300 records of query.npz also occur .*")


def test_overlap_is_dropped_when_asked(sets: Path):
    overlapping()
    done = jaxaudit("ks", *QUICK, "--calibration", "c.npz", "--drop-overlap", "--json")
    assert done.result["provenance"]["data"]["calibration"]["records"] == RECORDS
    assert "\n2 query records are also in the calibration set; they were dropped from it\n" in done.err


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
        r"a has float32 records of shape \(6, 6, 1\) but bb has float32 records of shape \(5, 7, 1\); .*--image-size.*",
    )
    refused(("--query", "a", "--calibration", "odd", "--image-size", "none"), r".*2.png: is 6x8 pixels but .*")


def test_target_data_of_another_shape(sets: Path):
    saved("t", INPUTS[:, 1:], LABELS)
    refused(
        (*QUICK, "--target-data", "t.npz"), r"t.npz has records of shape \(11,\) but query.npz of shape \(12,\); .*"
    )
    saved("t", INPUTS, np.arange(RECORDS) % 4)
    refused((*QUICK, "--target-data", "t.npz"), r"t.npz shares some classes with query.npz but not '3': .*")


def test_an_out_directory_that_cannot_be(sets: Path):
    Path("fixed").mkdir(mode=0o555)
    refused((*QUICK, "--out", "fixed/run"), r"--out fixed/run cannot be written: .*fixed is not writable; .*")
    Path("old").mkdir()
    Path("old/result.json").touch()
    refused((*QUICK, "--out", "old"), r"--out old already holds another run; name a new directory .*")
    refused((*QUICK, "--out", "x" * 300), r"--out x+ cannot be a directory: File name too long; name another\.")
