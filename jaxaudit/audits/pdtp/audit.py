"""The `pdtp` audit: A(T), every A(T without t), and what another seed alone moves, the seed floor of each record."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float
from msgspec.structs import replace

from jaxaudit.audits.finding import UNDECIDED, Finding, trained_here
from jaxaudit.audits.left_out import leave_out, say_everywhere, uses_key
from jaxaudit.audits.pdtp.result import (
    Floor,
    GroupRisk,
    PDTPResult,
    Risk,
    distribution,
    pdtp_finding,
)
from jaxaudit.data.examples import Examples
from jaxaudit.data.labels import checked_groups, number_groups
from jaxaudit.data.sequences import are_texts
from jaxaudit.data.table import duplicates
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution, fit_many
from jaxaudit.errors import InputError, check_distinct, check_ranges
from jaxaudit.kernels.dtp import MOST_BINS
from jaxaudit.learners import BoundsDTP, Learner, LeavesOneOut
from jaxaudit.membership import everyone
from jaxaudit.metrics.arrays import Integers, Mask, Numbers, OneKey
from jaxaudit.metrics.pdtp import BINS, DTP_1, SeedFloor, pdtp, seed_floor
from jaxaudit.randomness import join_keys, keys_at, several, stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTILES = (0.5, 0.9, 0.99)
SAME = 1e-6
"""Probabilities of two records that differ by no more are the same outputs."""
LISTED = 100_000
"""The most records that a result lists."""


@dataclass(frozen=True, eq=False)
class PDTPAudit:
    """The measurements of each record; larger PDTP means more exposed.

    Attributes:
        records: indices of the measured records.
        values: PDTP of each record in nats, the mean over measurements, with bins; `exact` without bins.
        dtp_bound: an upper bound in nats of the change of any output on any input, without bins, as proven for the
            learner (`BoundsDTP`); the mean over measurements.
        classes, directions: as of `jaxaudit.metrics.PDTP`, in the measurement with the record's largest value.
        floor: the seed floor: PDTP if nothing is removed and only the seed differs; 0 for a learner without a seed.
        duplicates: the number of records with the same input and label, the record itself included.
        only_member: whether it is the only record of its class.
        measurements: PDTP of each record in each measurement; each measurement has its own key.
        train_accuracy: the share of measured records that A(T) classifies as labelled.
        model: the kind of model that the learner trains, in words. `examples`: the number of training records.
        bins: equal bins of [0, 1] into which outputs were rounded; 0 for none.
        seeded: whether the learner's result depends on its key.
        same_outputs: whether A(T) gives all measured records the same probabilities, in every measurement.
        groups: the group of each record, numbered from 0, if whole groups were left out.
    """

    records: Integers
    values: Numbers
    exact: Numbers
    dtp_bound: Numbers | None
    classes: Integers
    directions: Integers
    floor: SeedFloor
    duplicates: Integers
    only_member: Mask
    measurements: Float[np.ndarray, "measurements n"]
    class_names: tuple[str, ...]
    model: str
    train_accuracy: float
    same_outputs: bool
    examples: int
    bins: int
    seeded: bool
    groups: Integers | None = None
    largest_group: int = 1

    @property
    def finding(self) -> Finding:
        """The verdict of the audit."""
        return self.result.finding

    @cached_property
    def result(self) -> PDTPResult:
        """The result computed from the measurements."""
        values, exact, floor, bound = self.values, self.exact, self.floor, self.dtp_bound
        seed_floor = float(np.mean(floor.mean)), float(np.max(floor.largest)), int((values > floor.largest).sum())
        risky = values > DTP_1
        with_and_without_bins = int((risky & (exact > DTP_1)).sum())
        quantiles = {f"{share:g}": float(np.quantile(values, share, method="inverted_cdf")) for share in QUANTILES}
        undecided = PDTPResult(
            finding=UNDECIDED,
            model=self.model,
            max_pdtp=float(values.max()),
            median_pdtp=float(np.median(values)),
            dtp_bound=None if bound is None else float(bound.max()),
            seed_floor=Floor(self.seeded, *seed_floor),
            quantiles=quantiles,  # pyright: ignore[reportArgumentType]
            distribution=distribution(values, floor.mean),
            above_1=int(risky.sum()),
            above_1_without_bins=int((exact > DTP_1).sum()),
            above_1_within_floor=int((risky & (values <= floor.largest)).sum()),
            copies=int((self.duplicates > 1).sum()),
            lone_members=int(self.only_member.sum()),
            training_records=self.examples,
            records_measured=len(values),
            train_accuracy=self.train_accuracy,
            same_outputs=self.same_outputs,
            records=self._risks(),
            groups=self._group_risks(),
            largest_group=self.largest_group,
        )
        finding = pdtp_finding(undecided, self.bins, with_and_without_bins)
        return replace(undecided, finding=trained_here(finding, f" ({self.model})"))

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A table with one row for each measured record; NaN where there is no number."""
        return {
            "index": self.records.astype(np.int64),
            "pdtp": self.values,
            "exact_pdtp": self.exact,
            "dtp_bound": np.full(len(self.records), np.nan) if self.dtp_bound is None else self.dtp_bound,
            "seed_floor": self.floor.mean,
            "seed_floor_max": self.floor.largest,
            "class": np.array(self.class_names)[self.classes],
            "direction": self.directions.astype(np.int8),
            "duplicates": self.duplicates.astype(np.int64),
            "only_member_of_its_class": self.only_member,
            **({} if self.groups is None else {"group": self.groups.astype(np.int64)}),
        }

    def _group_risks(self) -> tuple[GroupRisk, ...] | None:
        if self.groups is None:
            return None
        numbers, first, group_of_record, counts = np.unique(
            self.groups, return_index=True, return_inverse=True, return_counts=True
        )
        largest, floors = np.zeros(len(numbers)), np.zeros(len(numbers))
        np.maximum.at(largest, group_of_record, self.values)
        np.maximum.at(floors, group_of_record, self.floor.largest)
        rows = zip(self.records[first].tolist(), counts.tolist(), largest.tolist(), floors.tolist(), strict=True)
        return tuple(GroupRisk(*row) for row in rows)

    def _risks(self) -> tuple[Risk, ...]:
        listed = np.sort(np.argsort(-self.values, kind="stable")[:LISTED])
        columns = {name: column[listed].tolist() for name, column in self.columns.items() if name != "group"}
        columns["class"] = [self.class_names[number] for number in self.classes[listed]]
        if self.dtp_bound is None:
            columns["dtp_bound"] = [None] * len(listed)
        return tuple(Risk(*row) for row in zip(*columns.values(), strict=True))

    def plot(self) -> "Figure":
        """The distribution of PDTP, as a Matplotlib figure."""
        from jaxaudit.plots import charts as plot
        from jaxaudit.plots.style import canvas

        figure, axes = canvas()
        plot.draw_distribution(axes, self.result)
        return figure


def measure_pdtp(
    key: OneKey,
    examples: Examples,
    learner: Learner,
    *,
    records: Integers | None = None,
    bins: int = BINS,
    measurements: int = 1,
    seeds: int = 5,
    execution: Execution = DEFAULT_EXECUTION,
) -> PDTPAudit:
    """Which records do models that `learner` trains on `examples` expose? Long, Bindschaedler & Gunter (2017).

    Trains A(T) and A(T without t) for each record t, with the same key and the same minibatches except for t, so that
    they differ only by the record. A learner with closed-form leave-one-out models (`LeavesOneOut`) is not refitted,
    and a learner with a proven bound (`BoundsDTP`) gives `dtp_bound`. A model trained without the only member of a
    class has no record of that class: the learner defines its output, the value is large, and `only_member` marks it.

    Where `examples` have groups, such as patients, all records of t's group are left out together, and the PDTP of a
    group is the largest of its records. Any learner is then refitted, and no bound is proven. Models without a group of
    more than a tenth of the records take other minibatches, so that the PDTP contains what a seed moves, too.

    Args:
        examples: the training set T, in the form that the learner needs.
        learner: the model and training recipe, A.
        records: indices of the records to measure; by default all.
        bins: equal bins into which outputs are rounded, 100 in the paper; 0 for no bins; 1 is rejected.
        measurements: number of measurements, each with its own key; a record's PDTP is the mean (section 5.4).
        seeds: models of T for the seed floor, at least 2, including A(T).
        execution: see `Execution`; a stopped call is resumed as by `fit_many`.

    Returns:
        The PDTP in nats of each measured record, with its seed floor. `finding` is the verdict: `records exposed`,
            `no record exposed` or `inconclusive`.

    >>> import jaxaudit as ja
    >>> people = ja.ordinal(ja.load_table("breast-cancer"))
    >>> audit = measure_pdtp(jax.random.key(1), people, ja.naive_bayes((0,) * 30, 2))
    >>> audit.finding.verdict, len(audit.values), bool(audit.values.max() <= 1)
    ('records exposed', 569, False)
    """
    check_ranges("[1, inf)", measurements=measurements)
    check_ranges("[2, inf)", seeds=seeds)
    if bins:
        # In one bin all outputs are equal, and of more probabilities have no digits.
        check_ranges(f"[2, {MOST_BINS}]", bins=bins)
    if are_texts(examples):
        raise InputError(f"{examples.name}: texts have no classes; attack them by a bank (`train_shadows`, `attack`).")
    chosen, units = np.arange(len(examples)) if records is None else np.asarray(records), None
    check_distinct(records=chosen.tolist())
    check_ranges(f"[0, {len(examples)})", records=chosen)
    if examples.groups is not None:
        units = number_groups(checked_groups(examples.groups, "training set"))
        check_ranges("[2, inf)", "give at least two different ones", different_groups=int(units.max()) + 1)
    members = np.bincount(examples.labels, minlength=len(examples.class_names))
    if np.count_nonzero(members) < 2:
        raise InputError(
            f"{examples.name}: all records are of one class ({examples.class_names[int(members.argmax())]}): there is "
            "nothing to classify. Is the right column the label?"
        )
    seeded = uses_key(learner, examples)
    keys = jax.random.split(stream(key, "measure"), measurements if seeded else 1)
    # Progress counts models of networks; a closed form takes about as long as the models of the seed floor.
    refitted = units is not None or not isinstance(learner, LeavesOneOut)
    models = 1 if not refitted else len(chosen if units is None else np.unique(units[chosen]))
    floor_models = 0 if not seeded else seeds if refitted else 1
    *of_keys, of_floor = execution.split(*[models] * len(keys), floor_models)
    parts, exact, accuracy, apart, bounds = [], np.zeros(len(chosen)), 0.0, 0.0, []
    for one, part in zip(keys, of_keys, strict=True):
        left = leave_out(one, examples, learner, chosen, groups=units, execution=part)
        parts.append(pdtp(left.with_record, left.without_record, bins=bins))
        exact += pdtp(left.with_record, left.without_record, bins=0).values / len(keys)
        if isinstance(learner, BoundsDTP) and units is None:
            bound = learner.dtp_bound(examples.labels, examples.labels[chosen], left)
            bounds += [] if bound is None else [bound]
        apart = max(apart, float(np.ptp(np.exp(left.with_record), axis=0).max()))
        accuracy += float((left.with_record.argmax(axis=1) == examples.labels[chosen]).mean()) / len(keys)
    values = np.stack([part.values for part in parts])
    largest = values.argmax(axis=0), np.arange(len(chosen))
    floor = SeedFloor(np.zeros(len(chosen)), np.zeros(len(chosen)))
    if seeded:
        all_keys = join_keys([keys_at(keys, slice(1)), several(stream(key, "seed floor"), seeds - 1)])
        # Each model of all records has a key of its own.
        rows, pool = everyone(len(examples)).repeat(seeds, axis=0), (examples.inputs, examples.labels)
        say = partial(say_everywhere, learner, examples.inputs[chosen])
        outputs = fit_many(all_keys, rows, *pool, learner, execution=of_floor, summarize=say)
        floor = seed_floor(outputs, bins=bins)
    return PDTPAudit(
        records=chosen,
        values=values.mean(axis=0),
        exact=exact,
        dtp_bound=np.mean(bounds, axis=0) if bounds else None,
        classes=np.stack([part.classes for part in parts])[largest],
        directions=np.stack([part.directions for part in parts])[largest],
        floor=floor,
        duplicates=duplicates(examples)[chosen],
        only_member=members[examples.labels[chosen]] == 1,
        measurements=values,
        class_names=examples.class_names,
        model=str(getattr(learner, "kind", f"your learner {type(learner).__name__}")),
        train_accuracy=accuracy,
        same_outputs=apart <= SAME and len(chosen) > 1,
        examples=len(examples),
        bins=bins,
        seeded=seeded,
        groups=None if units is None else units[chosen],
        largest_group=1 if units is None else int(np.bincount(units).max()),
    )
