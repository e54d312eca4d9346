"""The `power` answer as JSON: what `jaxaudit power --json` prints and `--out` writes."""

from typing import Literal

from jaxaudit.audits.finding import Finding
from jaxaudit.audits.ks.tests.holdout import HoldoutTest
from jaxaudit.audits.ks.tests.members import MembersTest
from jaxaudit.audits.power.conclusions import By
from jaxaudit.audits.power.conclusions import Conclusion as Concluded
from jaxaudit.audits.power.result import FRACTIONS, Power
from jaxaudit.audits.power.result import Size as Detects
from jaxaudit.metrics.power_members import Memory as Measured
from jaxaudit.report.papers import cited
from jaxaudit.report.record import Extended, Number, Part, Provenance, Record, extended


class Separation(Part):
    """How far membership scores separate records in training; see `jaxaudit.metrics.power.Separation`."""

    difference: float
    inside: float
    outside: float
    between: float
    models: int
    stretch: float


class Chance(Part):
    """The probability that use of this fraction is detected."""

    fraction: float
    chance_noticed: float


class Size(Part):
    """What an audit of this size would detect; `least_noticed` is the minimum detectable fraction, null for none."""

    query: int
    holdout: int
    given: bool
    chances: list[Chance]
    least_noticed: Number


class ByModels(Part):
    """The minimum detectable fraction of the sizes given with so many shadow models; null for none."""

    models: int
    least_noticed: Number


class Memory(Part):
    """The same of the score of the members test, alone and with shadow models; see `metrics.power_members.Memory`."""

    alone: Separation
    helped: Separation
    units: float


class Conclusion(Part):
    """What would be concluded of a target, with known members or without; see `jaxaudit.audits.power.conclusions`.

    `forgotten` is null where a target cannot be called so, `memory` where there are no known members.
    """

    by: By
    query: int
    holdout: int
    members: int
    remembers: float
    memory: Extended | None
    forgotten: Number
    all_used: float
    part_used: float


class PowerRecord(Record, kw_only=True):
    """The object; `records_needed` is null where no number of records detects the fraction asked about.

    Results of versions that did not plan with known members have no `memory` and no `conclusions`.
    """

    schema: Literal["jaxaudit.power/2"] = "jaxaudit.power/2"
    finding: Finding
    separation: Separation
    sizes: list[Size]
    holdouts: list[Size]
    shadow_models: list[ByModels]
    fraction: float
    records_needed: int | None
    memory: Memory | None = None
    conclusions: tuple[Conclusion, ...] = ()


def power_record(power: Power, provenance: Provenance) -> PowerRecord:
    """The record of what was found; `provenance` repeats the run."""
    given = power.sizes[power.given]
    return PowerRecord(
        finding=power.finding,
        separation=Separation(*power.separation),
        sizes=[_size(size, place == power.given) for place, size in enumerate(power.sizes)],
        holdouts=[_size(size, (size.query, size.holdout) == (given.query, given.holdout)) for size in power.holdouts],
        shadow_models=[ByModels(models, least) for models, least in power.by_models],
        fraction=power.fraction,
        records_needed=power.records_needed,
        memory=power.memory and _memory(power.memory),
        conclusions=tuple(map(_conclusion, power.conclusions)),
        papers=cited([HoldoutTest.source, MembersTest.source]),
        provenance=provenance,
    )


def _memory(found: Measured) -> Memory:
    return Memory(Separation(*found.alone), Separation(*found.helped), found.units)


def _conclusion(found: Concluded) -> Conclusion:
    memory = None if found.memory is None else extended(found.memory)
    return Conclusion(
        *(found.by, found.query, found.holdout, found.members, found.remembers, memory, found.forgotten),
        *(found.all_used, found.part_used),
    )


def _size(size: Detects, given: bool) -> Size:
    chances = [Chance(*each) for each in zip(FRACTIONS, size.probabilities, strict=True)]
    return Size(size.query, size.holdout, given, chances, size.min_detectable)
