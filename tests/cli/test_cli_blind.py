"""`jaxaudit deal --blind` and `jaxaudit ks --deal` of it: what is written, what is judged, and what is refused."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from support.banks import train
from support.cli_runs import arrays, content, jaxaudit, records, refused
from support.deals import ROLES

from jaxaudit import load_bank
from jaxaudit.data import record_order

COUNT = 600
SHARES = ("--members-share", "0.4", "--holdout-share", "0.3")
BLIND, ANSWERS = ("ks", "--deal", "deal"), ("--target", "answers_deal/outputs.csv")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blind deals of the same records, of which one is of patients; and the answers of a forest to each."""
    folder = tmp_path_factory.mktemp("blind")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        inputs, labels = records(2, 0.0, COUNT)
        names = np.array(["a", "b", "c"])
        rows = np.random.default_rng(3).permutation(COUNT)
        np.savez("all.npz", x=inputs, y=labels, patient=rows // 5, class_names=names)
        for out, words in (("deal", ()), ("whole", ("--groups", "patient")), ("other", ())):
            done = jaxaudit("deal", "all.npz", *SHARES, *words, "--blind", "--out", out)
            assert done.code == 0, done.err
            Path(f"{out}.txt").write_text(done.out)
            answer(out)
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def key(out: str) -> dict[str, Any]:
    return json.loads(Path(out, "key.json").read_text())


def answer(out: str) -> None:
    """The probabilities of a forest of the members: one file of the challenge, with and without names; one a set."""
    known, asked = arrays(f"{out}/members.npz"), arrays(f"{out}/challenge.npz")
    model = RandomForestClassifier(60, min_samples_leaf=2, random_state=1).fit(known["x"], known["y"])
    Path(f"answers_{out}/named").mkdir(parents=True)
    np.savetxt(f"answers_{out}/outputs.csv", model.predict_proba(asked["x"]), delimiter=",", fmt="%.6f")
    lines = Path(f"answers_{out}/outputs.csv").read_text().splitlines()
    named = [f"{name},{line}" for name, line in zip(asked["record"], lines, strict=True)]
    Path(f"answers_{out}/named/outputs.csv").write_text("\n".join(("record,a,b,c", *reversed(named), "")))
    Path(f"answers_{out}/apart").mkdir()
    for role in ROLES:
        apart = model.predict_proba(arrays(f"{out}/{role}.npz")["x"])
        np.savetxt(f"answers_{out}/apart/{role}.csv", apart, delimiter=",", fmt="%.6f")


def apart(out: str = "deal") -> tuple[str, ...]:
    """The same deal without its key, and the outputs on its sets; the options of both."""
    if not Path(f"open_{out}").exists():
        shutil.copytree(out, f"open_{out}")
        for name in ("key.json", "challenge.npz"):
            Path(f"open_{out}", name).unlink()
    return ("--deal", f"open_{out}", "--target", f"answers_{out}/apart")


def result(*words: str) -> dict[str, Any]:
    return jaxaudit(*words, "--json").result


def numbers(judged: dict[str, Any]) -> list[Any]:
    """The verdict on each target, and the details of its tests: all but names of files."""
    return [
        (target["finding"]["verdict"], target["finding"]["sentence"], [test["details"] for test in target["tests"]])
        for target in judged["targets"]
    ]


@pytest.mark.parametrize("out", ["deal", "whole"])
def test_a_challenge_has_every_record_once_and_no_mark(folder: Path, out: str) -> None:
    found, told = arrays(f"{out}/challenge.npz"), key(out)
    assert list(found) == ["record", "x", "class_names"]
    assert sorted(row for rows in told["rows"].values() for row in rows) == list(range(COUNT))
    for role in ROLES:
        own = arrays(f"{out}/{role}.npz")
        np.testing.assert_array_equal(found["x"][told["rows"][role]], own["x"])
        assert own["x"].dtype == found["x"].dtype
    assert len(set(found["record"])) == COUNT
    assert told["groups"] is (out == "whole")
    assert {path.name for path in Path(out).iterdir()} == {
        *told["files"],
        "key.json",
        *["groups.csv"] * (out == "whole"),
    }
    assert {path.stat().st_mode & 0o777 for path in Path(out).iterdir()} == {0o600}


def test_nothing_in_a_challenge_depends_on_the_set_of_a_record(folder: Path) -> None:
    """Neither its row nor its name: each tells the sets apart in 2% of random orders at most (three deviations)."""
    for out in ("deal", "whole", "other"):
        rows, names = key(out)["rows"], arrays(f"{out}/challenge.npz")["record"]
        numbers = np.argsort(np.argsort(names))
        for role in ROLES:
            for ranks in (np.array(rows[role]), numbers[rows[role]]):
                deviation = (COUNT + 1) ** 0.5 * COUNT**0.5 / 12**0.5 / len(ranks) ** 0.5
                assert abs(ranks.mean() - (COUNT - 1) / 2) < 3.5 * deviation


def test_a_seed_repeats_the_sets_and_tells_no_row_or_number_of_a_group(folder: Path) -> None:
    """The order, the names and the groups' numbers follow from the salt, which is in the key alone."""
    first, second = key("deal"), key("other")
    assert first["seed"] != second["seed"]
    assert first["rows"] != second["rows"]
    for out, of, words in (("again", "deal", ()), ("whole again", "whole", ("--groups", "patient"))):
        seeded = ("deal", "all.npz", *SHARES, *words, "--seed", str(key(of)["seed"]))
        assert jaxaudit(*seeded, "--blind", "--out", out).code == 0
        again, first = key(out), key(of)
        assert not {again["salt"], again["commitment"]} & {first["salt"], first["commitment"]}
        asked, before = arrays(f"{out}/challenge.npz"), arrays(f"{of}/challenge.npz")
        # Of 600 rows one stands where it did, on average; ten by a chance of 1e-7.
        assert (asked["x"] == before["x"]).all(axis=1).sum() < 10
        assert not set(asked["record"].tolist()) & set(before["record"].tolist())
        for role in ROLES:
            mine, other = arrays(f"{out}/{role}.npz"), arrays(f"{of}/{role}.npz")
            np.testing.assert_array_equal(mine["x"], other["x"])
            np.testing.assert_array_equal(asked["x"][again["rows"][role]], mine["x"])
            assert "group" not in mine or not set(mine["group"].tolist()) & set(other["group"].tolist())
        # Seed and salt together repeat the order.
        dealt = np.concatenate([arrays(f"{out}/{role}.npz")["x"] for role in ROLES])
        rows = np.concatenate([again["rows"][role] for role in ROLES])
        whole = arrays("all.npz")["x"]
        np.testing.assert_array_equal(whole[record_order(again["salt"], COUNT)[rows]], dealt)
        told = b"".join(path.read_bytes() for path in Path(out).iterdir() if path.name != "key.json")
        assert again["salt"].encode() not in told
        assert bytes.fromhex(again["salt"]) not in told
    # The sets are those of a deal without a challenge.
    assert jaxaudit("deal", "all.npz", *SHARES, "--seed", str(key("again")["seed"]), "--out", "plain").code == 0
    blind = {name: each for name, each in content(Path("again")).items() if name not in ("challenge.npz", "key.json")}
    assert blind == content(Path("plain"))


@pytest.mark.parametrize("seed", ["7", str(2**60 - 1)])
def test_a_seed_that_can_be_tried_is_refused(folder: Path, seed: str) -> None:
    refused(("deal", "all.npz", *SHARES, "--seed", seed, "--blind", "--out", "tried"), ("--seed", "by trying"))
    assert not Path("tried").exists()
    assert all(key(out)["seed"] >= 2**60 for out in ("deal", "whole", "other"))


def test_the_commitment_is_printed_and_in_the_result(folder: Path) -> None:
    printed = Path("deal.txt").read_text()
    assert f"\n  {key('deal')['commitment']}\n" in printed
    assert "jaxaudit ks --deal deal --target OUTPUTS" in printed
    done = jaxaudit(*BLIND, *ANSWERS, "--report", "page.html", "--json")
    assert done.result["provenance"]["challenge"] == key("deal")["commitment"]
    assert key("deal")["commitment"] in Path("page.html").read_text()


@pytest.mark.parametrize("name", ["deal.json", "query.npz", "key.json"])
def test_a_file_that_was_changed_since_the_deal_is_refused(folder: Path, name: str, tmp_path: Path) -> None:
    shutil.copytree("deal", tmp_path / "deal")
    shutil.copytree("answers_deal", tmp_path / "answers_deal")
    os.chdir(tmp_path)
    if name == "query.npz":
        np.savez("deal/query.npz", **{**arrays("deal/query.npz"), "place": np.arange(180)[::-1]})
        # Without the key, too: the record of the deal tells.
        open_deal = apart()
        refused(("ks", *open_deal), ("deal.json", "changed since"))
        Path("open_deal/deal.json").unlink()
        assert jaxaudit("ks", *open_deal).code == 0
    elif name == "key.json":
        told = key("deal")
        told["rows"]["query"].reverse()
        Path("deal/key.json").write_text(json.dumps(told))
    else:
        Path("deal/deal.json").write_bytes(Path("deal/deal.json").read_bytes() + b" ")
    refused((*BLIND, *ANSWERS), (name,))


@pytest.mark.parametrize(("out", "file"), [("deal", "outputs.csv"), ("whole", "named/outputs.csv")])
def test_one_file_gives_the_numbers_of_three(folder: Path, out: str, file: str) -> None:
    """Bit for bit, and in whatever order rows with names come."""
    whole = result("ks", *apart(out), *(("--groups", "group") if out == "whole" else ()))
    one = result("ks", "--deal", out, "--target", f"answers_{out}/{file}")
    assert numbers(one) == numbers(whole)
    hashes = [
        [each["content_hash"] for role in ("targets", "holdout_targets", "members_targets") for each in found[role]]
        for found in (one["provenance"], whole["provenance"])
    ]
    assert hashes[0] == hashes[1]


def test_one_model_is_not_two_targets_however_its_rows_are_ordered(folder: Path) -> None:
    refused((*BLIND, *ANSWERS, "--target", "answers_deal/named/outputs.csv"), ("one model counts as two",))


def test_outputs_on_another_challenge_are_refused(folder: Path) -> None:
    refused((*BLIND, "--target", "answers_other/named/outputs.csv"), ("not those of the challenge",))
    # Without names, rows of another order are no better than guessing, and there is no verdict.
    (target,) = result(*BLIND, "--target", "answers_other/outputs.csv")["targets"]
    assert target["finding"]["verdict"] == "inconclusive"
    (failed, *_) = (check["message"] for check in target["finding"]["checks"] if check["state"] == "failed")
    assert "guessing" in failed
    lines = Path("answers_deal/outputs.csv").read_text().splitlines()
    Path("short.csv").write_text("\n".join((*lines[:-1], "")))
    refused((*BLIND, "--target", "short.csv"), (f"has {COUNT - 1} rows but the challenge has {COUNT} records",))


def test_what_the_key_stands_for_is_refused_beside_it(folder: Path) -> None:
    refused((*BLIND, *ANSWERS, "--query", "deal/query.npz"), ("deal of --deal has that set", "--query: "))
    refused((*BLIND, *ANSWERS, "--groups", "patient"), ("--groups: ", "blind deal"))
    refused(("deal", "all.npz", "--withdraw", "0.4", "--blind", "--out", "new"), ("--blind: needs a holdout",))


def test_beside_a_bank_every_model_answers_by_set(folder: Path):
    inputs, labels = records(3, 0.4, 60)
    np.savez("calibration.npz", x=inputs, y=labels, class_names=np.array(["a", "b", "c"]))
    plan = ("shadows", "plan", *BLIND[1:], "--calibration", "calibration.npz", "--models", "19", "--out", "bank")
    done = jaxaudit(*plan)
    assert done.code == 0, done.err
    train(load_bank("bank"), range(19))
    judged = ("ks", "--shadows", "bank", *BLIND[1:])
    refused((*judged, "--target", "answers_deal/apart", *ANSWERS), ("and another model has none", "by set"))
    assert jaxaudit(*judged, "--target", "answers_deal/apart", "--json").code == 0
