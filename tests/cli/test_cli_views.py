"""`jaxaudit deal --views` and what `jaxaudit ks --challenge` makes of the answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from support.cli_runs import arrays, jaxaudit, process, records, refused
from support.details import details_of

from jaxaudit.data import load
from jaxaudit.data.views import shifted_views

COUNT, VIEWS = 400, 5
SHARES = ("--members-share", "0.4", "--holdout-share", "0.3")
ROLES = ("query", "holdout", "members")


def key(out: str) -> dict[str, Any]:
    return json.loads(Path(out, "key.json").read_text())


def write_images(path: Path) -> None:
    digits = load("digits")
    np.savez(path, x=(15 * digits.inputs[:COUNT]).astype(np.uint8), y=digits.labels[:COUNT])


def answer(out: str, path: str) -> None:
    """The probabilities of a forest of the members, on each row of the challenge."""
    members, challenge = arrays(f"{out}/members.npz"), arrays(f"{out}/challenge.npz")
    model = RandomForestClassifier(60, random_state=1).fit(members["x"].reshape(len(members["x"]), -1), members["y"])
    answers = model.predict_proba(challenge["x"].reshape(len(challenge["x"]), -1))
    np.savetxt(path, answers, delimiter=",", fmt="%.6f")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("views")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_images(Path("all.npz"))
        for out, words in (("deal", ("--views", str(VIEWS))), ("plain", ())):
            done = jaxaudit("deal", "all.npz", *SHARES, "--seed", "3", "--blind", *words, "--out", out)
            assert done.code == 0, done.err
            Path(f"{out}.txt").write_text(done.out)
            answer(out, f"{out}.csv")
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def test_a_challenge_has_every_view_once_and_the_key_finds_them(folder: Path) -> None:
    challenge, rows = arrays("deal/challenge.npz"), key("deal")["rows"]
    assert list(challenge) == ["record", "x"]
    assert len(challenge["x"]) == len(set(challenge["record"])) == VIEWS * COUNT
    for role in ROLES:
        images = arrays(f"deal/{role}.npz")["x"]
        np.testing.assert_array_equal(challenge["x"][np.array(rows[role])], shifted_views(images, VIEWS))
    assert f"{VIEWS} views of each image" in Path("deal.txt").read_text()
    assert "views" not in Path("plain.txt").read_text()


def test_the_sets_are_the_same_with_and_without_views(folder: Path) -> None:
    for role in ROLES:
        assert Path(f"deal/{role}.npz").read_bytes() == Path(f"plain/{role}.npz").read_bytes()
    assert all(isinstance(row, int) for rows in key("plain")["rows"].values() for row in rows)


def test_no_row_of_a_challenge_tells_the_set_of_a_view_or_that_it_is_shifted(folder: Path) -> None:
    """The mean row of each set, and of each view, is as of random orders (three and a half deviations)."""
    rows = {role: np.array(each) for role, each in key("deal")["rows"].items()}
    total = VIEWS * COUNT
    by_view = np.concatenate(list(rows.values())).T
    for places in (*(each.ravel() for each in rows.values()), *by_view):
        deviation = ((total + 1) * total / 12 / len(places)) ** 0.5
        assert abs(places.mean() - (total - 1) / 2) < 3.5 * deviation


def test_the_answers_are_judged_with_their_views(folder: Path) -> None:
    """The members test says so; the file of a challenge with views is no answer to one without."""
    words = ("ks", "--challenge", "deal/key.json", "--target", "deal.csv")
    (target,) = jaxaudit(*words, "--json").result["targets"]
    assert details_of(target)[0]["score_of"] in ("record", "record and views", "views")
    assert any("several views" in caveat for caveat in target["finding"]["caveats"])
    (plain,) = jaxaudit("ks", "--challenge", "plain/key.json", "--target", "plain.csv", "--json").result["targets"]
    assert "score_of" not in details_of(plain)[0]
    refused((*words[:-1], "plain.csv"), (f"has {COUNT} rows but the challenge has {VIEWS * COUNT} records",))
    refused(("ks", "--challenge", "plain/key.json", "--target", "deal.csv"), (f"has {VIEWS * COUNT} rows",))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*SHARES, "--blind", "--views", "4"), "--views must be one of 1, 3, 5, 9"),
        ((*SHARES, "--blind", "--views", "-5"), "--views must be one of"),
        ((*SHARES, "--views", "5"), "needs --blind"),
        (("--blind", "--views", "5"), "--members-share"),
        (("--withdraw", "0.4", "--views", "5"), "needs --blind"),
    ],
)
def test_views_that_nothing_would_use_are_refused(folder: Path, words: tuple[str, ...], said: str) -> None:
    refused(("deal", "all.npz", *words, "--out", "new"), (said,))


def test_records_that_are_no_images_have_no_views(folder: Path) -> None:
    inputs, labels = records(2, 0.0, 100)
    np.savez("table.npz", x=inputs, y=labels)
    lines = [",".join(map(str, (*row, label))) for row, label in zip(inputs.tolist(), labels, strict=True)]
    Path("table.csv").write_text("\n".join((",".join([*map(str, range(12)), "label"]), *lines, "")))
    for name in ("table.npz", "table.csv"):
        refused(("deal", name, *SHARES, "--blind", "--views", "5", "--out", "new"), ("not images",))


@pytest.mark.outer
def test_a_challenge_with_views_is_dealt_answered_and_judged_by_processes(tmp_path: Path) -> None:
    write_images(tmp_path / "all.npz")
    done = process("deal", "all.npz", *SHARES, "--blind", "--views", "9", "--out", "deal", cwd=tmp_path)
    assert done.code == 0, done.err
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        answer("deal", "answers.csv")
    found = process("ks", "--challenge", "deal/key.json", "--target", "answers.csv", "--json", cwd=tmp_path)
    (target,) = found.result["targets"]
    assert details_of(target)[0]["score_of"]
