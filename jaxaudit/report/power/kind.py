"""Runs of `power`, as they are read, checked and shown; a run directory holds the result alone."""

from typing import get_args

from jaxaudit.audits.power.conclusions import REMEMBERS, By
from jaxaudit.report.kind import Arrays, Kind, demand
from jaxaudit.report.power.record import PowerRecord
from jaxaudit.report.power.view import power_part


def _check(result: PowerRecord, arrays: Arrays) -> None:
    demand(sum(size.given for size in result.sizes) == 1, "not one of its sizes is the one given")
    fractions = {tuple(each.fraction for each in size.chances) for size in (*result.sizes, *result.holdouts)}
    demand(len(fractions) == 1 and fractions != {()}, "its sizes have different fractions, or none")
    every = [result.fraction, *fractions.pop()]
    demand(all(0 < fraction <= 1 for fraction in every), "a fraction is not above 0 and at most 1")
    for size in (*result.sizes, *result.holdouts):
        fits = all(0 <= each.chance_noticed <= 1 for each in size.chances)
        demand(fits, "a probability is not between 0 and 1")
    for each in result.conclusions:
        chances = each.all_used, each.part_used, 0.0 if each.forgotten is None else each.forgotten
        demand(all(0 <= chance <= 1 for chance in chances), "a probability is not between 0 and 1")
    planned = {(each.query, each.holdout, each.by, each.remembers) for each in result.conclusions}
    of_sizes = {
        (size.query, size.holdout, by, factor) for size in result.sizes for by in get_args(By) for factor in REMEMBERS
    }
    demand(not planned or planned == of_sizes, "its conclusions are not those of its sizes")


POWER = Kind("power", PowerRecord, power_part, _check)
