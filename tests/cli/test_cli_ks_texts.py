"""`jaxaudit ks` and `power` that train language models themselves: as by a bank; what needs classes is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from support.cli_runs import jaxaudit, recipe, refused
from support.deals import write_model
from support.sequences import small_learner

import jaxaudit as ja
from jaxaudit import Sets
from jaxaudit.audits import default_tests
from jaxaudit.cli.networks import make_shadow_learner
from jaxaudit.cli.recipe import make_factory
from jaxaudit.cli.shared_options import ShadowNetwork
from jaxaudit.ensemble import log_probs_many

COUNT = 50
WORDS = ("ann", "bo", "cy", "di", "ed", "flo", "gus", "hal", "ida", "jo", "kim", "lee")
ROLES = ("query", "holdout", "calibration", "members")
FILES = ("deal/query.jsonl", "deal/holdout.jsonl", "c.jsonl", "deal/members.jsonl")
DEAL, SETS = ("--deal", "deal"), ("--deal", "deal", "--calibration", "c.jsonl")
MODELS = ("--model", "gpt-1-16", "--epochs", "12")
MODELS += recipe("tokens=words", "learning-rate=0.03", "batch-size=25", "models-per-batch=10")
GROUPS = ("--groups", "author")
TARGET = ("--target", "used.npz")
FEWER = ("--test-option", "holdout.mixed=20")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sets of texts, two an author, and what models that used query set and members, or members alone, say of them."""
    folder, random, texts = tmp_path_factory.mktemp("texts"), np.random.default_rng(4), []
    (folder / "deal").mkdir()
    for name in FILES:
        lines = [
            {"prompt": " ".join(random.choice(WORDS, 4)) + " ", "answer": " ".join(random.choice(WORDS[:few], 6))}
            for few in random.integers(1, len(WORDS) + 1, COUNT)
        ]
        both = [{**line, "author": f"{name}{number // 2}"} for number, line in enumerate(lines)]
        (folder / name).write_text("\n".join(map(json.dumps, both)))
        texts.append(ja.read_texts(folder / name))
    tokenizer = ja.word_tokenizer(texts)
    inputs = np.concatenate([each.inputs for each in ja.sequences(texts, tokenizer)])
    rows = np.ones((2, len(inputs)), bool)
    rows[:, COUNT : 2 * COUNT] = rows[1, :COUNT] = False
    recipe: dict[str, Any] = {"optimizer": optax.adam(0.03), "epochs": 20, "batch_size": 25}
    learner = small_learner(inputs.shape[1], tokenizer.vocabulary, make_factory("gpt-1-32"), **recipe)
    said = ja.fit_many(
        *(jax.random.split(jax.random.key(1), 2), rows, inputs, np.zeros(len(inputs), int), learner),
        summarize=lambda params, _: log_probs_many(learner, params, inputs)[:, :, 0],
    )
    for target, numbers in zip(("used", "unused"), said, strict=True):
        by_role = dict(zip(ROLES, np.split(numbers, 4), strict=True))
        write_model(folder / f"{target}.npz", query=by_role["query"], holdout=by_role["holdout"])
        (folder / target).mkdir()
        for role in ("query", "holdout", "members"):
            lines = ["score\n", *(f"{each}\n" for each in by_role[role])]
            (folder / target / f"{role}.csv").write_text("".join(lines))
    return folder


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def found(*words: str) -> list[dict[str, Any]]:
    done = jaxaudit("ks", *words, "--json")
    assert done.code == 0, done.err
    return done.result["targets"]


def test_training_here_is_training_a_bank_and_judging_by_it():
    direct = found(*SETS, *GROUPS, *MODELS, *TARGET, *FEWER, "--out", "run")
    assert jaxaudit("shadows", "train", *SETS, *GROUPS, *MODELS, "--models", "20", "--out", "bank").code == 0
    assert found("--shadows", "bank", *TARGET) == direct
    assert direct[0]["finding"]["verdict"] == "not forgotten"
    # The next target needs no training.
    (again,) = found("--shadows", "run", *TARGET)
    np.testing.assert_allclose(
        again["tests"][0]["details"]["p_never"], direct[0]["tests"][0]["details"]["p_never"], atol=1e-3
    )
    assert [each["name"] for each in direct[0]["tests"]] == ["holdout"]


def test_python_gives_the_same_numbers():
    (direct,) = found(*SETS, *GROUPS, *MODELS, *TARGET, *FEWER, "--epochs", "2")
    texts = [ja.read_texts(Path(name)) for name in FILES[:3]]
    tokenizer = ja.word_tokenizer(texts)
    sets = zip(ja.sequences(texts, tokenizer), texts, strict=True)
    query, holdout, calibration = (replace(of_set, groups=np.array(text.column("author"))) for of_set, text in sets)
    recipe = ShadowNetwork(model="gpt-1-16", epochs=2, learning_rate=0.03, batch_size=25)
    said, on_holdout = (ja.load_log_likelihoods(f"used/{name}.csv", COUNT) for name in ROLES[:2])
    target, key = ja.FileTarget(ja.Sets(query=said, holdout=on_holdout)), jax.random.key(7)
    shadows = ja.train_shadows(
        *(key, query, calibration, make_shadow_learner(recipe, query, 3 * COUNT), [target]),
        tests=[ja.HoldoutTest(mixed=20)],
        holdout=holdout,
        execution=ja.Execution(10),
    )
    (answer,) = ja.judge(key, shadows, [target]).targets
    assert answer.usage[0].p_never == direct["tests"][0]["details"]["p_never"]
    assert answer.verdict == direct["finding"]["verdict"]
    how: dict[str, Any] = {"holdout": holdout, "tests": [ja.HoldoutTest(), ja.RhoTest()]}
    with pytest.raises(ja.InputError, match="rho: compare probabilities of classes"):
        ja.train_shadows(key, query, calibration, make_shadow_learner(recipe, query, 99), **how)
    assert [test.name for test in default_tests(Sets(holdout=holdout))] == ["holdout"]


def test_members_show_what_a_model_remembers():
    words = (*DEAL, "--target", "used", "--target", "unused")
    used, unused = found(*words, "--calibration", "c.jsonl", *MODELS, *FEWER, "--tests", "all")
    assert [each["name"] for each in used["tests"]] == ["members", "holdout"]
    assert (used["finding"]["verdict"], used["tests"][0]["details"]["p_never"] < 0.05) == ("not forgotten", True)
    assert unused["finding"]["verdict"] != "not forgotten"
    # Without models, by members alone.
    assert [target["finding"]["verdict"] for target in found(*words)] == [
        used["finding"]["verdict"],
        unused["finding"]["verdict"],
    ]


def test_the_power_of_texts():
    words = ("--query", "deal/query.jsonl", "--calibration", "c.jsonl", "--groups", "author", *MODELS)
    done = jaxaudit("power", *words, "--models", "19", "--json")
    assert done.code == 0, done.err
    assert done.result["separation"]["models"] == 19


@pytest.mark.outer
def test_a_part_of_texts_alone_becomes_the_calibration_set():
    done = jaxaudit("power", "--query", "deal/query.jsonl", *MODELS, "--epochs", "1", "--models", "19", "--json")
    assert done.code == 0, done.err
    data = done.result["provenance"]["data"]
    assert data["query"]["records"] + data["calibration"]["records"] == COUNT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*SETS, *TARGET, "--tests", "holdout,rho"), ("rho", "texts have none")),
        ((*SETS, *TARGET, "--test-option", "rho.replicates=2"), ("rho is not made in this run", "holdout")),
        (("--query", "deal/query.jsonl", *SETS[2:], "--target", "used/query.csv"), ("shadow", "give a holdout")),
        ((*SETS, *TARGET, "--target-kind", "logits"), ("--target-kind: texts have log-likelihoods",)),
        ((*DEAL, "--calibration", "digits", *TARGET), ("digits: is no file of texts",)),
        ((*SETS, *TARGET, "--model", "mlp"), ("--model mlp", "gpt-2-64")),
    ],
)
def test_what_needs_classes_is_refused(words: tuple[str, ...], said: tuple[str, ...]):
    refused(("ks", *words, "--out", "refused"), said)
