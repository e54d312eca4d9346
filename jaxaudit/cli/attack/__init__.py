"""`jaxaudit attack`: its options. Imports nothing heavy, so that `--help` is instant."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from jaxaudit.attacks.records import BUILT_IN
from jaxaudit.cli.classifiers import ClassifierOptions, TableData
from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import AUDIT, ModelSource, bank_option, option
from jaxaudit.cli.own_code import parse_field, with_fields
from jaxaudit.cli.parsers import parse_names
from jaxaudit.cli.shared_options import MOST, TRAINED_HERE, Output, Seeded, bank_of_shadows, failing
from jaxaudit.errors import InputError

ON_RECORDS = tuple(name for names in BUILT_IN.values() for name in names)
"""Names of the attacks with a bank."""
ON_TARGETS = ("untargeted", "distance", "frequency")
"""Names of the attacks without a bank; a test compares them with `ATTACKS`, which takes a second to import."""


def named_attacks(options: "AttackOptions", built_in: Iterable[Any]) -> tuple[Any, ...]:
    """The attacks that `--attacks` names, in order, else all of the built-in ones, with their options."""
    attacks = {attack.name: attack for attack in built_in}
    names = parse_names(options.attacks or ",".join(attacks), (*attacks,), "--attacks")
    return tuple(
        with_fields("--attack-option", options.attack_option, {name: attacks[name] for name in names}).values()
    )


@dataclass(frozen=True)
class AttackOptions(TableData, ClassifierOptions, Seeded, Output):
    """All options of the command."""

    goes_with: ClassVar = {TableData: TRAINED_HERE, ClassifierOptions: TRAINED_HERE}

    attacks: str | None = option(
        AUDIT,
        "Attacks to make, such as distance,frequency; with --shadows: "
        f"{', '.join(ON_RECORDS)}. With --shadows the first decides, and only the default one can show that attacks do "
        "no better than guessing; without, all decide together. [default: all, with --shadows stacked first]",
        metavar="NAME,...",
    )
    attack_option: tuple[str, ...] = option(
        AUDIT,
        "Set an option of an attack: its name, a field, and a value. rmia.gamma, rmia-offline.gamma: "
        "the factor that a ratio must exceed others by (2). rmia-offline.scale: how far the mean over models without a "
        "record stands for all (0.3). Repeatable.",
        default=(),
        metavar="NAME.FIELD=VALUE",
        check=partial(parse_field, "--attack-option"),
    )
    iterations: int | None = option(
        AUDIT,
        "Random splits; each target is attacked twice in each. [default: 100; 10 without --data]",
        minimum=1,
        maximum=MOST,
        of=TRAINED_HERE,
    )
    targets: int | None = option(
        AUDIT,
        "Target records, drawn at random. [default: 100, or all; 20 without --data]",
        minimum=1,
        of=TRAINED_HERE,
    )
    shadows: Path | None = bank_of_shadows(
        "Attack every record by the shadow models of this bank (shadows plan|train|add|import, or ks --out): LiRA, "
        "RMIA, BASE and others. Nothing is trained.",
    )
    target: tuple[Path, ...] = bank_option(
        AUDIT,
        "--shadows: a target's outputs on all records of the bank, on its query set, or on query set and holdout, in "
        "the bank's order: .npy, .npz, .csv or .parquet. Repeatable. [default: each shadow model is a target]",
        default=(),
        names="file",
    )
    members: tuple[Path, ...] = bank_option(
        AUDIT,
        "--shadows: a .npy of booleans, which of these records the target was trained on, if that is known. "
        "Repeatable: one per --target, in the same order.",
        default=(),
        names="file",
    )
    target_kind: Literal["auto", "probabilities", "logits"] = bank_option(
        AUDIT, "--shadows: what the targets' files contain.", default="auto"
    )
    fail_on: tuple[Literal["gives-records-away", "gives-some-away", "inconclusive"], ...] = failing()

    @property
    def source(self) -> ModelSource:
        """The origin of the models from which attacks learn."""
        return super().source if self.shadows is None else ModelSource.BANK


def _check_attacks(options: AttackOptions) -> None:
    names = ON_RECORDS if options.source is ModelSource.BANK else ON_TARGETS
    words = parse_names(options.attacks or names[0], (*ON_TARGETS, *ON_RECORDS), "--attacks")
    if other := [name for name in words if name not in names]:
        raise InputError(
            f"--attacks {','.join(other)}: there are {', '.join(names)} here. On a table they compare probabilities of "
            "classes by models of their own; by a bank (--shadows) they take one number a record."
        )
    if options.members and len(options.members) != len(options.target):
        raise InputError(
            f"--target was given {len(options.target)} times and --members {len(options.members)} times: give "
            "one of each target, in the same order."
        )


ATTACK = Command(
    "attack",
    AttackOptions,
    {ModelSource.BANK: "attack.run:prepare_attack_by_bank"},
    """How well do membership attacks do on a kind of classifier? (Long, Bindschaedler & Gunter 2017)

    Trains classifiers on random halves of the records and attacks target records: was the record in the training set,
    judging by the classifier's output on it? Guessing has an accuracy of 50%. Models of yours: --shadows, with a bank.

    How classifiers are trained is --model, --epochs and the settings of --recipe:

    {recipe}

    Examples:

    `jaxaudit attack` (embedded breast cancer data, a neural network, less than a minute)

    `jaxaudit attack --data people.csv --label income --model nn --iterations 100 --targets 100`

    `jaxaudit attack --shadows bank --attacks stacked,lira,rmia --out run` (every record of a bank, or every author of
    texts, where `shadows train` had the words --coins --groups author; trains nothing)
    """,
    (_check_attacks,),
    first=("data", "model", "shadows"),
)
