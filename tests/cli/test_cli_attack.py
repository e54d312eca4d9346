"""`jaxaudit attack` from its words to what it prints, writes, refuses and resumes."""

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import jax
import jsonschema
import numpy as np
import pytest
from jaxaudit.report.attack.table import attack_table
from rich.console import Console
from support.cli_runs import Done, content
from support.cli_runs import jaxaudit as command
from typer import Typer

from jaxaudit.audits.attack.result import AttackAudit, AttackResult
from jaxaudit.cli.attack.command import attack
from jaxaudit.cli.attack.run import parse_attacks
from jaxaudit.errors import InputError
from jaxaudit.metrics.attack import attack_metrics, correlation, per_target_accuracy
from jaxaudit.report.attack.record import attack_json, attack_schema

PEOPLE = ("--csv", "people.csv", "--label", "income")
SMALL = ("--iterations", "2", "--targets", "5", "--shadows", "2", "--untargeted-shadows", "2", "--measured", "1")
NETWORK = (*PEOPLE, *SMALL, "--epochs", "3", "--batch-size", "10", "--width", "4", "--attacks", "distance")
ALL_ATTACKS = (*PEOPLE, *SMALL, "--learner", "nb")
BAYES = (*PEOPLE, *SMALL, "--learner", "nb", "--attacks", "distance,frequency")
RECORDS = 61


def jaxaudit(*words: str) -> Done:
    """`jaxaudit attack WORDS` in this process, an error as the one line it becomes."""
    app = Typer(pretty_exceptions_enable=False)
    app.command()(attack)
    out, err, code = StringIO(), StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            app(list(words), standalone_mode=False)
        except InputError as error:
            code = 2
            print(f"Error: {error}", file=err)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`people.csv`: numbers, words, and a label that follows from them, of an odd number of people."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(5)
    with (tmp_path / "people.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "hours", "work", "income"])
        for _ in range(RECORDS):
            age, hours = int(random.integers(18, 80)), round(float(random.uniform(5, 60)), 1)
            work = random.choice(["private", "state"])
            rows.writerow([age, hours, work, "high" if age + hours + random.normal(0, 15) > 80 else "low"])
    return tmp_path


@pytest.fixture(scope="module")
def found() -> AttackAudit:
    """An audit made up: two attacks, of which one is right about the first targets, whose PDTP is largest."""
    random = np.random.default_rng(4)
    first = random.random((20, 40)) < 0.5
    truth = np.stack([first, ~first], axis=1).reshape(40, 40)
    pdtp = np.linspace(3, 0, 40)
    strengths = {"distance": pdtp, "frequency": 0 * pdtp}
    of_whom = np.tile(np.arange(40), 40)

    def judged(name: str) -> AttackResult:
        scores = np.where(truth, 1, -1) * strengths[name] + random.normal(size=truth.shape)
        flat = scores.ravel(), truth.ravel(), of_whom
        accuracy = per_target_accuracy(*flat, 40)
        metrics = attack_metrics(jax.random.key(1), *flat, bootstrap=50)
        return AttackResult(name, metrics, accuracy, correlation(accuracy, pdtp), scores)

    attacks = tuple(judged(name) for name in strengths)
    return AttackAudit(np.arange(40), truth, attacks, pdtp[None], 1.0, 0.5, 100, 100, 5, 4)


# What is printed and written.


def test_json_is_all_of_stdout_and_follows_the_schema():
    done = jaxaudit(*ALL_ATTACKS, "--json")
    result = done.result
    jsonschema.validate(result, json.loads(attack_schema()))
    assert done.out.count("\n") == 1
    assert [one["name"] for one in result["attacks"]] == ["untargeted", "distance", "frequency"]
    assert result["protocol"] == {
        "candidates": 60,
        "training_records": 30,
        "iterations": 2,
        "targets": 5,
        "attacks_on_each_target": 4,
        "measured_iterations": 1,
        "bins": 100,
    }
    assert len({target["index"] for target in result["targets"]}) == 5
    assert all(0 <= target["index"] < RECORDS for target in result["targets"])
    for target in result["targets"]:
        assert target["largest_accuracy"] == max(target["accuracy"].values())
        assert target["accuracy"][target["strongest_attack"]] == target["largest_accuracy"]
    lines = done.err.splitlines()
    assert lines[0] == "people.csv: 61 records, 3 columns, 2 classes"
    # 4 attacked, 2 untargeted shadows, 2 x 3 x 4 of pairs for 5 targets in groups of 2, and none for closed forms.
    assert lines[-1] == f"attacking 5 of 60 candidates 4 times through nb: 30 models on {jax.default_backend()}"


def test_the_run_directory_holds_the_same_result_and_plain_arrays(people: Path):
    done = jaxaudit(*BAYES, "--json", "--out", "run")
    assert json.loads((people / "run/result.json").read_text()) == done.result
    with np.load(people / "run/outputs.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {"records", "truth", "pdtp", "scores_distance", "scores_frequency"}
        assert arrays["records"].tolist() == [target["index"] for target in done.result["targets"]]
        right = (arrays["scores_distance"] > 0) == arrays["truth"]
        assert right.mean() == pytest.approx(done.result["attacks"][0]["accuracy"]["value"])
    assert jaxaudit(*BAYES, "--out", "run").err == (
        "Error: --out run already holds another run; name a new directory (nothing was changed).\n"
    )


def test_the_same_command_gives_the_same_numbers():
    one, other = (jaxaudit(*BAYES, "--json").result for _ in range(2))
    assert one["provenance"].pop("seconds") >= 0
    other["provenance"] |= {"started": one["provenance"]["started"]}
    other["provenance"].pop("seconds")
    assert one == other
    moved = jaxaudit(*BAYES, "--json", "--seed", "8").result
    assert moved["targets"] != one["targets"]


def test_the_command_that_repeats_a_run_does(people: Path):
    done = jaxaudit(*BAYES, "--json")
    command = done.result["provenance"]["command"]
    assert command[:2] == ["jaxaudit", "attack"]
    again = jaxaudit(*command[2:], "--json")
    assert again.result["targets"] == done.result["targets"]
    assert again.result["attacks"] == done.result["attacks"]


def test_table_on_stdout_and_talk_on_stderr():
    done = jaxaudit(*BAYES, "--top", "2")
    assert done.code == 0
    assert done.out.startswith("Can an attacker tell who was in the training set?\n")
    assert "5 targets attacked 4 times each" in done.out
    assert "2 targets most often found out" in done.out
    assert "attacking" not in done.out


def shown(audit: AttackAudit, top: int = 3, level: float = 0.95) -> str:
    """At the width of the narrowest terminals."""
    out = StringIO()
    Console(file=out, width=80).print(attack_table(audit, 10 * audit.targets, level, top))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_the_table_for_people(found: AttackAudit):
    said = shown(found)
    accuracy = found.attacks[0].metrics.accuracy
    row = said.splitlines().index(next(line for line in said.splitlines() if line.strip().startswith("distance")))
    assert said.splitlines()[row].split()[1] == f"{accuracy.value:.3f}"
    assert said.splitlines()[row + 1].split()[0] == f"{accuracy.low:.2f}-{accuracy.high:.2f}".replace("0.", ".")
    assert "below each number: its 95% interval" in said
    assert "99.99999% interval" in shown(found, level=0.9999999)
    assert "largest 3.000, above 1 of 26" in said
    assert "…" not in said
    assert "3 targets most often found out" in said
    assert "most often found out" not in shown(found, top=0)
    assert "the largest of a target's accuracies correlates with PDTP at 0.88" in said
    # 800 attacks on non-members: 1% is within reach, 0.1% is not.
    assert "0.1% false positives is not resolvable: it takes 1,000 attacks on non-members" in " ".join(said.split())
    assert said.splitlines()[row].split()[-2] == "-"


def test_the_question_is_answered_by_the_best_attack(found: AttackAudit):
    accuracy = found.attacks[0].metrics.accuracy
    interval = f"({accuracy.low:.1%} to {accuracy.high:.1%})"
    assert f"  yes: distance is right {accuracy.value:.1%} of the time {interval}\n" in shown(found)
    weak = replace(found, attacks=found.attacks[1:])
    assert "  not by these attacks: frequency is right " in shown(weak)
    metrics = found.attacks[0].metrics
    single = metrics._replace(accuracy=metrics.accuracy._replace(low=np.nan, high=np.nan))
    alone = replace(found, attacks=(replace(found.attacks[0], metrics=single),))
    assert "of the time, of a single target\n" in shown(alone)


def test_the_first_targets_are_the_exposed_ones(found: AttackAudit):
    result = attack_json(found, 10 * found.targets, {})
    assert result["attacks"][0]["correlation"]["with_pdtp"] > 0.8
    assert abs(result["attacks"][1]["correlation"]["with_pdtp"]) < 0.5
    assert [target["index"] for target in result["targets"][:3]] == [0, 10, 20]
    assert result["targets"][0]["strongest_attack"] == "distance"
    assert result["strongest"]["pdtp_above_1"] == 26
    assert 0.8 < result["strongest"]["share_above"]["0.6"] <= 1


def test_json_has_words_for_what_json_cannot_hold(found: AttackAudit):
    exact = AttackAudit(**{**vars(found), "measurements": np.full((1, 40), np.inf), "bins": 0})
    result = attack_json(exact, exact.targets, {})
    json.dumps(result, allow_nan=False)
    assert result["max_pdtp"] == result["targets"][0]["pdtp"] == "infinity"
    assert result["strongest"]["correlation"] == {
        "with_pdtp": None,
        "p_value": None,
        "targets": 40,
        "reason": "a value is infinite",
    }
    assert "some PDTP are infinite" in " ".join(result["caveats"])
    assert "largest infinite" in shown(exact)
    assert "no correlation, a value is infinite" in " ".join(shown(exact).split())


def test_the_schema_is_a_schema_and_refuses_other_things(found: AttackAudit):
    schema = json.loads(attack_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    for attack_of in attack_json(found, found.targets, {})["attacks"]:
        wrong = {**attack_of, "accuracy": {**attack_of["accuracy"], "value": 2}}
        each = jsonschema.Draft202012Validator(schema["properties"]["attacks"] | {"$defs": schema["$defs"]})
        assert each.is_valid([attack_of])
        assert not each.is_valid([wrong])
        assert not each.is_valid([{**attack_of, "extra": 1}])
    assert not jsonschema.Draft202012Validator(schema).is_valid({"schema": "jaxaudit.attack/1"})


# Stopping.


def stopping(share: float) -> Callable[[str], object]:
    @contextmanager
    def progress(label: str) -> Iterator[Callable[[int, int], None]]:
        def show(done: int, total: int) -> None:
            if done > share * total:
                raise KeyboardInterrupt

        yield show

    return progress


def test_a_stopped_run_goes_on(people: Path, monkeypatch: pytest.MonkeyPatch):
    whole = jaxaudit(*NETWORK, "--json").result
    with monkeypatch.context() as patch:
        patch.setattr("jaxaudit.cli.attack.run.progress_on_stderr", stopping(0.7))
        stopped = jaxaudit(*NETWORK, "--json", "--out", "run")
    assert stopped.code == 130
    assert stopped.err.splitlines()[-1].endswith(" models are trained; the same command goes on from there.")
    kept, _, total = stopped.err.splitlines()[-1].removeprefix("Interrupted: ").split()[:3]
    assert 0 < int(kept) < int(total)
    before = content(people / "run")
    other = jaxaudit(*NETWORK, "--json", "--out", "run", "--shadows", "3")
    assert "an unfinished run made with other options (shadows: 2 there, 3 here)" in other.err
    assert content(people / "run") == before
    done = jaxaudit(*NETWORK, "--json", "--out", "run")
    assert f"Resuming: {kept} of {total} models are trained.\n" in done.err
    assert done.result["attacks"] == whole["attacks"]
    assert done.result["targets"] == whole["targets"]
    assert sorted(path.name for path in (people / "run").iterdir()) == ["outputs.npz", "result.json", "table.txt"]


# What is refused.


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--attacks", "distanc"), "--attacks: there is no attack called 'distanc'; did you mean distance?"),
        (
            ("--attacks", "distance,xyz"),
            "--attacks: there is no attack called 'xyz'; give some of untargeted, distance, frequency.",
        ),
        (("--attacks", ","), "no attack was chosen: choose untargeted, distance or frequency, or several."),
        (
            ("--targets", "61"),
            "61 targets cannot be drawn from the 60 candidates of people.csv: ask for at least 1 and",
        ),
        (("--candidates", "62"), "--candidates 62 asks for more than the 61 records of people.csv; leave it out to"),
        (("--candidates", "31"), "--candidates 31 cannot be split into equal halves; give an even number."),
        (
            ("--bins", "0"),
            "outputs cannot be put into 0 bins: give at least 2, or 0 for none, but the frequency attack",
        ),
        (("--bins", "1"), "outputs cannot be put into 1 bins: give at least 2, or 0 for none"),
        (("--level", "1"), "--level must be between 0 and 1, such as 0.95, got 1."),
        (("--data", "wine"), "--data and --csv both name the training set; give one of them."),
        (("--hidden", "x"), "--hidden x must be whole numbers"),
    ],
)
def test_options_that_cannot_be_used(words, line):
    done = jaxaudit(*PEOPLE, *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].startswith(f"Error: {line}")


def test_a_single_class_is_refused(people: Path):
    (people / "one.csv").write_text("a,label\n" + "".join(f"{i},yes\n" for i in range(10)))
    done = jaxaudit("--csv", "one.csv", *SMALL)
    assert (done.code, done.out) == (2, "")
    assert "every row has the same label" in done.err


@pytest.mark.parametrize("option", ["bins", "iterations", "shadows", "untargeted-shadows", "smoothing", "epochs"])
def test_numbers_no_machine_gets_through_are_refused_before_the_data_are_read(option):
    done = command("attack", *PEOPLE, f"--{option}", str(2**64))
    assert (done.code, done.out) == (2, "")
    assert "people.csv: " not in done.err


def test_splits_that_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jaxaudit.cli.classifier.os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 10}.get)
    done = jaxaudit(*ALL_ATTACKS[:4], "--learner", "nb", "--iterations", "1000")
    assert (done.code, done.out) == (2, "")
    assert "--iterations 1000 takes" in done.err


def test_targets_of_a_table_with_gaps_are_known_by_their_place_in_the_file(people: Path):
    header, *rows = (people / "people.csv").read_text().splitlines()
    (people / "gaps.csv").write_text(
        "\n".join([header, *(f",{row.partition(',')[2]}" for row in rows[:21]), *rows[21:]])
    )
    words = ("--csv", "gaps.csv", "--label", "income", "--missing", "drop", *BAYES[4:], "--targets", "40", "--json")
    targets = jaxaudit(*words).result["targets"]
    assert len(targets) == 40
    assert {target["index"] for target in targets} == set(range(21, 61))


def test_attacks_are_parsed():
    assert parse_attacks(" frequency ,distance,,distance") == (False, True, True)
    assert parse_attacks("untargeted") == (True, False, False)
