"""`jaxaudit ks` and `power` of texts: by language models that they train, by members alone, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import jaxaudit, recipe, refused
from support.deals import write_model
from support.language_models import write_lines

COUNT = 50
WORDS = ("ann", "bo", "cy", "di", "ed", "flo", "gus", "hal", "ida", "jo", "kim", "lee")
ROLES = ("query", "members")
FILES = ("deal/query.jsonl", "deal/holdout.jsonl", "c.jsonl", "deal/members.jsonl")
DEAL, SETS = ("--deal", "deal"), ("--deal", "deal", "--calibration", "c.jsonl")
MODELS = ("--model", "gpt-1-16", "--epochs", "6")
MODELS += recipe("tokens=words", "learning-rate=0.03", "batch-size=25", "models-per-batch=10")
TARGET = ("--target", "used.npz")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets of texts, two an author, and what a model of query set and members, and one of members alone, say."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(4)
    Path("deal").mkdir()
    for name in FILES:
        lines = [{"prompt": "who ", "answer": " ".join(random.choice(WORDS, 6))} for _ in range(COUNT)]
        write_lines(name, [{**line, "author": f"{name}{row // 2}"} for row, line in enumerate(lines)])
    for target, used in (("used", ROLES), ("unused", ("members",))):
        said = {role: -random.gamma(40, 0.05, COUNT) * (0.6 if role in used else 1) for role in ("holdout", *ROLES)}
        write_model(f"{target}.npz", query=said["query"], holdout=said["holdout"])
        Path(target).mkdir()
        for role, numbers in said.items():
            Path(target, f"{role}.csv").write_text("\n".join(["score", *map(str, numbers), ""]))
    return tmp_path


def judged(*words: str) -> list[dict[str, Any]]:
    return jaxaudit("ks", *DEAL, "--target", "used", "--target", "unused", *words, "--json").result["targets"]


def test_members_alone_show_what_a_model_remembers():
    used, unused = judged()
    assert [each["name"] for each in used["tests"]] == ["members"]
    assert used["finding"]["verdict"] == "not forgotten" != unused["finding"]["verdict"]


@pytest.mark.outer
def test_members_are_judged_beside_language_models_and_the_next_target_needs_no_training():
    words = (*SETS[2:], "--groups", "author", *MODELS, "--test-option", "holdout.mixed=20", "--tests", "all")
    used, _ = judged(*words, "--out", "run")
    assert [each["name"] for each in used["tests"]] == ["members", "holdout"]
    (again,) = jaxaudit("ks", "--shadows", "run", *TARGET, "--json").result["targets"]
    assert max(each["details"]["p_never"] for each in (*used["tests"], *again["tests"])) < 0.05


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
