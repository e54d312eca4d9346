"""`--model` of scikit-learn or of your own, from its words to what `pdtp`, `attack` and `shadows train` make of it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from support.cli_runs import jaxaudit, own_modules, recipe, refused
from support.people import PEOPLE, write_people, write_rows

FOREST = ("--model", "sklearn.ensemble:RandomForestClassifier")
MINE = """
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
print("imported")
def make():
    print("made")
    return make_pipeline(StandardScaler(), KNeighborsClassifier(2))
one = make()
class Vain(KNeighborsClassifier):
    def fit(self, inputs, labels):
        raise RuntimeError("too vain")
def with_argument(neighbours):
    return KNeighborsClassifier(neighbours)
"""
PATIENTS = ("--query", "patients.csv", "--label", "outcome", "--groups", "patient", "--coins", "--models", "6")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    """A working folder with two tables, whose modules are forgotten afterwards."""
    write_people(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    random = np.random.default_rng(2)
    rows = random.normal(size=(80, 4)).round(3)
    cells = [[*row, "ill" if row[0] + random.normal() > 0 else "well", f"p{at // 2}"] for at, row in enumerate(rows)]
    write_rows(tmp_path / "patients.csv", [*"abcd", "outcome", "patient"], cells)
    with own_modules(tmp_path):
        yield


def test_a_bank_of_estimators_is_trained_goes_on_and_is_attacked():
    words = ("shadows", "train", *PATIENTS, *FOREST, *recipe("n_estimators=3", "max_features=none"), "--out", "bank")
    done = jaxaudit(*words)
    assert done.code == 0, done.err
    bank = json.loads(Path("bank/bank.json").read_text())
    assert (bank["outputs"], bank["models_per_batch"]) == ("probabilities", 1)
    assert bank["recipe"].startswith(f"model {FOREST[1]}, recipe n_estimators=3 max_features=")
    before = {path.name: path.read_bytes() for path in Path("bank/outputs").iterdir()}
    outputs = np.load("bank/outputs/00003.npy")
    assert set(np.unique((outputs * 3).round(6)).tolist()) == {0, 1, 2, 3}
    Path("bank/outputs/00003.npy").unlink()
    assert jaxaudit(*bank["command"][1:], "--out", "bank").code == 0
    assert {path.name: path.read_bytes() for path in Path("bank/outputs").iterdir()} == before
    attacked = jaxaudit("attack", "--shadows", "bank", "--json").result
    assert attacked["models"] == 6
    assert attacked["finding"]["verdict"] == "gives some away"


def test_own_code_is_trained_and_prints_to_nobody():
    for name in ("mine.py:make", "mine.py:one"):
        done = jaxaudit("pdtp", *PEOPLE, "--model", name, "--json", "--measured-records", "3")
        assert done.result["model"] == "Pipeline"
        assert "imported\nmade" in done.err
    trained = jaxaudit("shadows", "train", *PATIENTS, "--model", "mine.py:make", "--out", "bank")
    assert (trained.code, trained.out.count("\n")) == (0, 2), trained.err
    assert json.loads(Path("bank/bank.json").read_text())["recipe"].startswith("model mine.py:make, source of model")


def test_a_bank_whose_first_training_failed_takes_another_recipe_and_one_with_a_model_does_not():
    failed, trained, other = (
        jaxaudit("shadows", "train", *PATIENTS, *model, "--out", "bank")
        for model in (("--model", "mine.py:Vain"), ("--model", "mine.py:make"), FOREST)
    )
    assert (failed.code, trained.code, other.code) == (2, 0, 2)
    assert "other recipe" in other.err
    assert json.loads(Path("bank/bank.json").read_text())["recipe"].startswith("model mine.py:make")


ENCODED = """
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
def make():
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough")
    return make_pipeline(encoder, RandomForestClassifier(3))
"""


def write_towns() -> None:
    """The table of patients, with a word and a name of each visit."""
    lines = Path("patients.csv").read_text().splitlines()
    cells = [f"{line},{('Rome', 'Bari', 'Turin')[at % 3]},visit {at}" for at, line in enumerate(lines[1:])]
    Path("towns.csv").write_text("\n".join([f"{lines[0]},town,visit", *cells]) + "\n")
    Path("encoded.py").write_text(ENCODED)


def test_a_pipeline_with_an_encoder_gets_the_columns_as_they_are():
    pytest.importorskip("pandas")
    write_towns()
    of_towns = ("--query", "towns.csv", *PATIENTS[2:], "--model", "encoded.py:make")
    done = jaxaudit("shadows", "train", *of_towns, "--drop", "visit", "--out", "bank")
    assert done.code == 0, done.err
    assert "the 5 of the table as they are" in done.err
    words = ("--data", "towns.csv", "--label", "outcome", "--drop", "visit", "--drop", "patient", "--sample", "20")
    assert jaxaudit("pdtp", *words, "--measured-records", "2", "--model", "encoded.py:make", "--json").code == 0
    # A word that reaches the forest is of no record in a message.
    left = jaxaudit("shadows", "train", *of_towns, "--out", "left")
    assert (left.code, "could not convert" in left.err, "visit " in left.err) == (2, True, False)
    Path("towns.csv").write_text(
        re.sub(r"visit \d+", lambda name: f"O'Brien {name[0][6:]}", Path("towns.csv").read_text())
    )
    quoted = jaxaudit("shadows", "train", *of_towns, "--out", "quoted")
    assert (quoted.code, "ValueError" in quoted.err, "Brien" in quoted.err) == (2, True, False)


@pytest.mark.outer
def test_workers_get_the_columns_too():
    pytest.importorskip("pandas")
    write_towns()
    of_towns = ("--query", "towns.csv", *PATIENTS[2:], "--model", "encoded.py:make", "--drop", "visit")
    for workers, out in (((), "bank"), (("--workers", "2"), "again")):
        assert jaxaudit("shadows", "train", *of_towns, *workers, "--out", out).code == 0
    for model in range(6):
        one, other = (np.load(f"{folder}/outputs/{model:05}.npy") for folder in ("bank", "again"))
        np.testing.assert_array_equal(one, other)


def test_ids_name_records_where_the_result_is_and_nowhere_else():
    write_towns()
    of_towns = ("shadows", "train", "--query", "towns.csv", *PATIENTS[2:], *FOREST, *recipe("n_estimators=3"))
    for how, out in ((("--id", "visit"), "named"), (("--drop", "visit"), "nameless")):
        assert jaxaudit(*of_towns, *how, "--out", out).code == 0
    # An id is no input.
    for model in range(6):
        one, other = (np.load(f"{folder}/outputs/{model:05}.npy") for folder in ("named", "nameless"))
        np.testing.assert_array_equal(one, other)
    named, nameless = (
        jaxaudit("attack", "--shadows", out, "--json", "--out", f"run-{out}").result for out in ("named", "nameless")
    )
    assert [each["id"] for each in named["exposure"]["riskiest"]] == [
        f"visit {each['place']}" for each in named["exposure"]["riskiest"]
    ]
    assert {each["id"] for each in nameless["exposure"]["riskiest"]} == {""}
    header, first = Path("run-named/records.csv").read_text().splitlines()[:2]
    assert (header.split(",")[2], first.split(",")[2]) == ('"id"', '"visit 0"')
    assert '"id"' not in Path("run-nameless/records.csv").read_text().splitlines()[0]
    assert not [
        path for path in Path("nameless").rglob("*") if path.is_file() and b"v\0\0\0i\0\0\0s" in path.read_bytes()
    ]
    refused((*of_towns, "--id", "visi", "--out", "other"), ("'visi'",))
    refused((*of_towns, "--id", "outcome", "--out", "other"), ("outcome",))


def test_a_tree_is_attacked_as_scikit_learn_grows_it():
    few = ("--targets", "6", "--iterations", "2", "--attacks", "distance")
    tree = f"sklearn.tree:{DecisionTreeClassifier.__name__}"
    result = jaxaudit("attack", *PEOPLE, "--model", tree, *few, "--json").result
    # Grown in full it knows its own records, of which one is there twice.
    assert result["splits"]["train_accuracy"] == 1
    assert max(record["pdtp"] for record in result["splits"]["records"]) == pytest.approx(np.log(199))
    options = result["provenance"]["options"]
    assert (options["model"], options["recipe"], "epochs" in options) == (tree, [], False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*FOREST, *recipe("n_estimator=3")), ("n_estimator:", "n_estimators, ")),
        ((*FOREST, *recipe("random_state=3")), ("random_state:",)),
        ((*FOREST, *recipe("n_jobs=3")), ("n_jobs:",)),
        ((*FOREST, *recipe("n_estimators=few")), ("model 0", "n_estimators", "'few'")),
        ((*FOREST, *recipe("batch-size=3")), ("batch-size:",)),
        ((*FOREST, *recipe("n_estimators={[]:1}")), ("model 0", "n_estimators")),
        ((*FOREST, "--epochs", "3"), ("--epochs",)),
        ((*FOREST, *recipe("smoothing=3")), ("smoothing:",)),
        (("--model", "mine.py:make", *recipe("batch-size=3")), ("--recipe batch-size",)),
        (("--model", "sklearn.ensemble:Forest"), ("'Forest'",)),
        (("--model", "sklearn.svm:SVC"), ("SVC", "predict_proba")),
        (("--model", "sklearn.svm:LinearSVC"), ("predict_proba",)),
        (("--model", "sklearn.multiclass:OneVsRestClassifier"), ("arguments", "file.py:make")),
        (("--model", "mine.py:Vain"), ("model 0", "Vain", "RuntimeError: too vain")),
        (("--model", "mine.py:with_argument"), ("mine.py:with_argument", "no estimator")),
        (("--model", "mine.py"), ("mine.py:make",)),
        (("--model", "knn"), ("nn, nb", "file.py:make")),
    ],
)
def test_what_cannot_be_trained_is_refused(words: tuple[str, ...], said: tuple[str, ...]):
    refused(("pdtp", *PEOPLE, *words, "--out", "run"), said)


def test_texts_have_no_classes():
    Path("texts.jsonl").write_text("".join(f'{{"text": "a text {at}"}}\n' for at in range(8)))
    words = ("shadows", "train", "--coins", "--query", "texts.jsonl", *FOREST, "--out", "run")
    refused(words, ("RandomForestClassifier", "classes"))
