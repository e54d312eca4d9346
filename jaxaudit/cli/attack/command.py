"""`jaxaudit attack`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from typing import Any

from jaxaudit.cli.classifiers import ClassifierOptions
from jaxaudit.cli.groups import AUDIT, DATA, MODEL, MOST, OUTPUT, TRAINING, Level, ListOutput, Recipe, failing
from jaxaudit.cli.harness import Command, Job, Planned
from jaxaudit.cli.options import group, option
from jaxaudit.cli.tables import TableData
from jaxaudit.cli.words import parse_names


def attacks_named(text: str | None) -> tuple[str, ...]:
    """The attacks that `--attacks` names; without it all that there are.

    Raises:
        InputError: one is unknown.
    """
    # Imported here because it takes a second.
    from jaxaudit.attacks import ATTACKS

    known = tuple(attack.name for attack in ATTACKS)
    return known if text is None else parse_names(text, known, "--attacks")


@dataclass(frozen=True)
class AttackAudit(Level):
    """The targets, the number of attacks, and the attacks."""

    attacks: str | None = option(
        None, "Attacks to make, such as distance,frequency. [default: all]", metavar="NAME,...", check=attacks_named
    )
    iterations: int | None = option(
        None,
        "Random splits; each target is attacked twice in each. [default: 100; 10 without --data]",
        minimum=1,
        maximum=MOST,
    )
    targets: int | None = option(
        None, "Target records, drawn at random. [default: 100, or all; 20 without --data]", minimum=1
    )
    shadow_pairs: int = option(
        5,
        "distance, frequency: pairs of shadow models per target, with and without it.",
        formerly=("--shadows",),
        minimum=1,
        maximum=MOST,
    )
    fresh_shadows: bool = option(False, "Train new pairs in every iteration: --iterations times the cost.")
    pooled_shadow_models: int = option(
        20,
        "untargeted: shadow models trained on random halves.",
        formerly=("--untargeted-shadows",),
        minimum=1,
        maximum=MOST,
    )
    measured_iterations: int = option(
        10, "Iterations in which PDTP is measured, too.", formerly=("--measured",), minimum=1, maximum=MOST
    )
    bins: int = option(
        100, "Bins into which outputs are rounded before they are compared; 0: none.", minimum=0, maximum=MOST
    )


@dataclass(frozen=True)
class AttackOutput(ListOutput):
    """What is printed and written."""

    top: int = option(5, "Number of targets to list, by attack accuracy.", minimum=0, decides=False)
    fail_on: tuple[str, ...] = failing("attack succeeds", "inconclusive")


@dataclass(frozen=True)
class AttackOptions:
    """All options of the command."""

    data: TableData = group(DATA, TableData())
    model: ClassifierOptions = group(MODEL, ClassifierOptions())
    recipe: Recipe = group(TRAINING, Recipe(epochs=100, batch_size=32, learning_rate=0.01, optimizer="sgd"))
    audit: AttackAudit = group(AUDIT, AttackAudit())
    output: AttackOutput = group(OUTPUT, AttackOutput())


def _prepare(options: AttackOptions) -> Job[Any] | Planned:
    from jaxaudit.cli.attack.run import prepare

    return prepare(options)


ATTACK = Command(
    "attack",
    AttackOptions,
    _prepare,
    """How well do membership attacks do on this classifier? (Long, Bindschaedler & Gunter 2017)

    Trains the classifier on random halves of the records and attacks target records: was the record in the training
    set, judging by the classifier's output on it? Guessing has an accuracy of 50%. PDTP of the targets is shown, too.

    Examples:

    `jaxaudit attack` (embedded breast cancer data, a neural network, less than a minute)

    `jaxaudit attack --data adult --model nn --attacks untargeted,distance,frequency --iterations 100 --targets 100`

    `jaxaudit attack --csv people.csv --label income --model nb --attacks distance --json`
    """,
)
