"""The declarations of options: what a command line says is what a command is given, and the other way round."""

import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli_runs import jaxaudit
from support.deals import write_model
from typer.main import get_command

from jaxaudit.audits.ks.tests_of_use import BUILT_IN, BY_MODELS, TESTS, USUAL
from jaxaudit.cli.app import COMMANDS, app
from jaxaudit.cli.deal import DealOptions
from jaxaudit.cli.harness import Command
from jaxaudit.cli.ks.options import KSOptions
from jaxaudit.cli.options import (
    ModelSource,
    OptionField,
    command_line,
    fields_of,
    identity_of,
    json_options,
    models_source,
    refuse_without_effect,
)
from jaxaudit.cli.shadows import PLAN, TRAIN
from jaxaudit.errors import InputError

DECLARED = (*COMMANDS, PLAN, TRAIN)
EVERY = pytest.mark.parametrize("command", DECLARED, ids=lambda command: command.name)
WORDS = st.text(st.sampled_from("ab1-_,.=@: é日"), max_size=6) | st.sampled_from(
    ["--width", "--json", "-h", "--", "-1"]
)
PATHS = st.sampled_from(["a", "b.npz", "-c", "d e", "folder/f.csv"]).map(Path)


@contextmanager
def parsing() -> Iterator[list[Any]]:
    """Within it a command does nothing with its options but to leave them here."""
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAXAUDIT_DATA", raising=False)
        patch.setattr("jaxaudit.cli.harness.run", lambda _, options: found.append(options))
        yield found


def parsed(*words: str) -> Any:
    """The options that these words mean."""
    with parsing() as found:
        done = jaxaudit(*words)
    assert (done.code, len(found)) == (0, 1), done.err
    return found[0]


@cache
def parser() -> Any:
    return get_command(app)


def values_of(field: OptionField) -> st.SearchStrategy[Any]:
    """What can be said for this option on a command line."""
    kind = field.kind
    if typing.get_origin(kind) is tuple:
        return st.lists(one_of(typing.get_args(kind)[0], field), max_size=3).map(tuple)
    base = kind
    if isinstance(kind, types.UnionType):
        base = next(each for each in typing.get_args(kind) if each is not types.NoneType)
    said = one_of(base, field)
    # What has a default cannot be said to be nothing.
    return st.none() | said if field.value is None and not field.choices else said


def one_of(kind: Any, field: OptionField) -> st.SearchStrategy[Any]:
    declared = field.declared
    if field.choices:
        return st.sampled_from(field.choices)
    if field.name in ("tests", "attacks"):
        # Which tests are named decides where models come from, so no other word is read.
        return st.sampled_from(
            ["shadow", "shadow, rho"] if field.name == "tests" else ["distance", "distance, frequency"]
        )
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(declared.minimum, declared.maximum)  # pyright: ignore[reportArgumentType]
    if kind is float:
        return st.floats(declared.minimum, declared.maximum, allow_nan=False, allow_infinity=False)
    return PATHS if kind is Path else WORDS


def some_of(command: Command) -> st.SearchStrategy[tuple[Command, dict[str, Any]]]:
    """The command, and values of some of the options that decide its numbers."""
    fields = [field for field in fields_of(command.options()) if field.declared.decides]
    # Parameters are of the estimators that scikit-learn has.
    decided = {field.name: values_of(field) for field in fields if field.name != "parameters"}
    return st.tuples(st.just(command), st.fixed_dictionaries({}, optional=decided))


def with_effect(command: Command, values: dict[str, Any]) -> Any:
    """The options with these values, but for those that mean nothing with the source of models."""
    options = command.options(**values)
    used = {field.name for field in fields_of(options) if models_source(options) in field.of}
    return command.options(**{name: value for name, value in values.items() if name in used})


@settings(max_examples=60)
@given(st.one_of([some_of(command) for command in DECLARED]))
def test_the_command_line_of_options_means_these_options(known: tuple[Command, dict[str, Any]]):
    command, values = known
    options = with_effect(command, values)
    words = command_line(command.name, options)
    assert words[0] == "jaxaudit"
    assert " ".join(words[1:]).startswith(command.name)
    with parsing() as found:
        parser().main(words[1:], standalone_mode=False)
    assert found == [options]


@EVERY
def test_every_option_has_one_meaning_and_no_words_mean_the_defaults(command: Command):
    assert parsed(*command.name.split()) == command.options()
    found = list(fields_of(command.options()))
    flags = [flag for field in found for each in field.flags for flag in each.split("/")]
    names = [field.name for field in found]
    for each in (flags, names, list(json_options(command.options()))):
        assert len(set(each)) == len(each)
    for field in found:
        assert field.declared.help.endswith((".", "]")), field.name


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_can_be_read_by_programs_written_down_and_failed_on(command: Command):
    flags = {field.flag: field for field in fields_of(command.options())}
    assert {"--json", "--out", "--report", "--seed"} <= flags.keys()
    # Efficacy has no verdict to fail on.
    assert ("--fail-on" in flags) is (command.name != "efficacy")
    assert all(field.choices for flag, field in flags.items() if flag == "--fail-on")
    assert not flags["--out"].declared.decides


@EVERY
def test_what_an_option_is_declared_not_to_be_is_refused(command: Command, monkeypatch: pytest.MonkeyPatch):
    """Less than its minimum, more than its maximum, no number, none of its choices."""
    monkeypatch.setenv("COLUMNS", "300")
    tried = 0
    for field in fields_of(command.options()):
        declared, wrong = field.declared, list[Any]()
        if field.choices:
            wrong = ["zero"]
        elif declared.minimum is not None or declared.maximum is not None:
            step = 1 if "int" in str(field.kind) else 1e-3
            wrong = ["seven", "nan"] if step == 1 or field.declared.check is None else ["seven"]
            wrong += [declared.minimum - step] if declared.minimum is not None else []
            wrong += [declared.maximum + step * max(1, declared.maximum)] if declared.maximum is not None else []
        for value in wrong:
            words = ("--recipe", f"{field.setting}={value}") if declared.in_recipe else (f"{field.flag}={value}",)
            with parsing() as found:
                done = jaxaudit(*command.name.split(), *words)
            assert (done.code, found) == (2, []), (field.flag, value)
            assert field.flag in done.err
            tried += 1
    assert tried > 5


SOURCES = {
    "ks": {
        ModelSource.TRAINING: {},
        ModelSource.BANK: {"shadows": Path("bank")},
        ModelSource.ANSWERS: {"deal": Path("deal"), "target": (Path("t.npz"),)},
        ModelSource.SCORES: {"scores": Path("s.csv")},
    },
    "attack": {
        ModelSource.TRAINING: {},
        ModelSource.BAYES: {"model": "nb"},
        ModelSource.ESTIMATOR: {"model": "sklearn.svm:SVC"},
        ModelSource.BANK: {"shadows": Path("bank")},
    },
    "pdtp": {
        ModelSource.TRAINING: {},
        ModelSource.BAYES: {"model": "nb"},
        ModelSource.ESTIMATOR: {"model": "sklearn.svm:SVC"},
    },
    "power": {
        ModelSource.TRAINING: {},
        ModelSource.BANK: {"shadows": Path("bank")},
        ModelSource.SCORES: {"scores": Path("s.csv")},
    },
    "shadows train": {
        ModelSource.TRAINING: {},
        ModelSource.ESTIMATOR: {"model": "sklearn.svm:SVC"},
    },
    "unlearn": {ModelSource.TRAINING: {}, ModelSource.OUTPUTS: {"outputs": ("mine=m.npz",)}},
}
"""The commands with several sources of models, and the option that names each."""


def other(field: OptionField) -> Any:
    """A value that is not the option's default."""
    kind = field.kind
    if field.choices:
        value = next(each for each in field.choices if each != field.value)
        return (value,) if typing.get_origin(kind) is tuple else value
    if kind is bool:
        return not field.value
    base = {each for each in (kind, *typing.get_args(kind)) if each in (int, float, str, Path)}.pop()
    value = base(field.value or 0) + 1 if base in (int, float) else base("else")
    return (value,) if typing.get_origin(kind) is tuple else value


@pytest.mark.parametrize("command", [command for command in DECLARED if command.name in SOURCES])
def test_an_option_is_refused_where_it_means_nothing_and_only_there(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By its flag; and what has no effect is neither in the command nor among the options of a run without training."""
    monkeypatch.chdir(tmp_path)
    Path("deal").mkdir()
    for role in ("query", "holdout"):
        Path(f"deal/{role}.csv").write_text("a,b,label\n1,0,0\n0,1,1\n0,0,2\n")
    write_model("t.npz", query=np.eye(3), holdout=np.eye(3))
    for source, named in SOURCES[command.name].items():
        assert models_source(command.options(**named)) is source
        for field in fields_of(command.options(**named)):
            options = command.options(**{**named, field.name: other(field)})
            # A set that the deal has, and a test that is none, are refused by themselves; parameters are a recipe, too.
            itself = {"query", "tests", "parameters"}
            if field.name in {*named, *itself} or models_source(options) is not source:
                continue
            if source in field.of:
                refuse_without_effect(options)
            else:
                with pytest.raises(InputError, match=rf"^{field.flag}: "):
                    refuse_without_effect(options)
            known = field.declared.decides and (source in field.of or source is ModelSource.TRAINING)
            name = field.name if field.declared.in_recipe else field.flag.removeprefix("--").replace("-", "_")
            assert (name in json_options(options)) is known
            assert source in field.of or source is ModelSource.TRAINING or field.flag not in command_line("", options)


def test_a_place_is_no_part_of_a_run():
    here, there = (
        KSOptions(
            query=f"{folder}/q.npz",
            calibration="mnist",
            deal=Path(folder, "deal"),
            target=(Path(folder, "t.csv"),),
            epochs=3,
        )
        for folder in ("here", "there")
    )
    assert json_options(here) != json_options(there)
    assert identity_of(here) == identity_of(there)
    assert identity_of(here)["epochs"] == 3
    assert identity_of(here) != identity_of(KSOptions(epochs=4))
    places = "deal query calibration groups target before shadows scores"
    assert set(json_options(here)) - set(identity_of(here)) == set(places.split())


def test_what_is_only_printed_is_no_part_of_a_run():
    quiet, loud = KSOptions(), KSOptions(as_json=True, out=Path("run"), fail_on=("forgotten",))
    assert json_options(quiet) == json_options(loud)
    assert command_line("ks", quiet) == command_line("ks", loud)


def test_what_is_handed_on_names_no_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    options = KSOptions(
        query=f"{tmp_path}/data/q.npz@train[:10]",
        target=(tmp_path / "a.csv", Path("/elsewhere/secret/b.csv")),
        model="/elsewhere/secret/net.py:Net",
        hidden="512,256",
    )
    said = json_options(options)
    wanted = {"query": "data/q.npz@train[:10]", "target": ["a.csv", "b.csv"], "model": "net.py:Net"}
    assert {name: said[name] for name in wanted} == wanted
    words = command_line("ks", options)
    assert "data/q.npz@train[:10]" in words
    assert not [word for word in words if str(tmp_path) in word or "secret" in word]


def test_an_argument_is_a_word_without_a_flag():
    options = DealOptions(data="a.npz@train", holdout_share=0.25, seed=7, out=Path("deal"))
    words = command_line("deal", options)
    assert words == ["jaxaudit", "deal", "a.npz@train", "--holdout-share", "0.25", "--seed", "7"]
    assert json_options(options)["data"] == "a.npz@train"
    assert "data" not in identity_of(options)


def test_every_test_of_ks_is_named_on_the_command_line_with_the_sets_that_it_needs():
    needs = [(test.name, {*test.roles, *(("before",) if test.needs_before else ())}) for test in TESTS]
    assert needs == [(name, set(roles)) for name, roles in BUILT_IN.items()]
    assert {*USUAL, *BY_MODELS} == {*BUILT_IN}
    assert not {test.name for test in TESTS if test.roles} & {*BY_MODELS}
