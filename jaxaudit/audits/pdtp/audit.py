"""The `pdtp` audit: A(T), every A(T without t), and what another seed alone moves, the seed floor of each record."""

import jax
import numpy as np
from jaxtyping import Array, Int, Key, Shaped

from jaxaudit.audits.left_out import leave_out, outputs_of_seeds, uses_key
from jaxaudit.audits.pdtp.measured import PDTPAudit
from jaxaudit.audits.pdtp.result import Reduction
from jaxaudit.data.examples import Examples
from jaxaudit.data.group_values import checked_groups, number_groups
from jaxaudit.data.sequences import are_texts, counted_tokens
from jaxaudit.data.tables.table import duplicates
from jaxaudit.ensemble import DEFAULT_EXECUTION, Execution
from jaxaudit.errors import InputError
from jaxaudit.kernels.binning import check_bins
from jaxaudit.learners import BoundsDTP, Learner, LeavesOneOut, LeftOut
from jaxaudit.metrics.pdtp import BINS, SeedFloor, pdtp, seed_floor
from jaxaudit.randomness import join_keys, keys_at, several, stream


def measure_pdtp(
    key: Key[Array, ""],
    examples: Examples,
    learner: Learner,
    *,
    records: Int[np.ndarray, " records"] | None = None,
    groups: Shaped[np.ndarray, " examples"] | None = None,
    bins: int | None = None,
    measurements: int = 1,
    seeds: int = 5,
    execution: Execution = DEFAULT_EXECUTION,
) -> PDTPAudit:
    """May the classifier that `learner` trains on `examples` be published? Long, Bindschaedler & Gunter (2017).

    Trains A(T) and A(T without t) for each record t, with the same key and the same minibatches except for t, so that
    they differ only by the record. A learner with closed-form leave-one-out models (`LeavesOneOut`) is not refitted,
    and a learner with a proven bound (`BoundsDTP`) gives `dtp_bound`. A model trained without the only member of a
    class has no record of that class: the learner defines its output, the value is large, and `only_member` marks the
    record.

    Records of text (`sequences`) have one output, the probability of the record's own text: of all tokens that count,
    given those before them. Its logarithm is the sum over tokens, since PDTP is a ratio of probabilities and the text
    as a whole is the output; the mean would be a ratio for an average token. So a longer text moves more, and by the
    DTP-1 rule its probability may change by a factor of e, however long it is. What other texts the models would
    rather write is not compared: PDTP is then a lower bound in its outputs, too. `per_token` divides by the tokens.

    With `groups`, such as the author of each text, all records of t's group are left out together, and the PDTP of a
    group is the largest of its records. Any learner is then refitted, and no bound is proven. Models without a group of
    more than a tenth of the records take other minibatches, so that the PDTP contains what a seed moves, too.

    Args:
        key: random key; everything follows from it.
        examples: the training set T, in the form that the learner needs.
        learner: the model and training recipe, A.
        records: indices of the records to measure; by default all.
        groups: one value (integer or text) per record of T; by default each record is left out alone.
        bins: equal bins into which outputs are rounded before they are compared, 100 in the paper; 0 for no bins; 1 is
            rejected. By default 100, and none for texts, whose probabilities are all in the first bin.
        measurements: number of measurements, each with its own key; a record's PDTP is the mean (section 5.4).
        seeds: models of T for the seed floor, at least 2, including A(T).
        execution: how models are trained, progress, and where finished chunks are kept. A later call with the same
            arguments resumes from them; see `fit_many`. The caller must ensure that `learner` is unchanged.

    Returns:
        The PDTP in nats of each measured record, larger for a more exposed one, with its seed floor. `result` is what
        `jaxaudit pdtp` reports, `finding` its verdict: `publish`, `do not publish` or `inconclusive`.

    Raises:
        InputError: a record does not exist or is given twice, there is a single class or group, or a number is out of
            range.

    >>> import jaxaudit as ja
    >>> people = ja.one_hot(ja.load_table("breast-cancer"))
    >>> learner = ja.logistic_regression(people.inputs.shape[1], 2)
    >>> audit = measure_pdtp(jax.random.key(1), people, learner)
    >>> audit.finding.verdict, len(audit.values), bool(audit.values.max() <= 1)
    ('publish', 569, True)
    """
    texts = are_texts(examples)
    bins = (0 if texts else BINS) if bins is None else bins
    if measurements < 1 or seeds < 2 or bins < 0:
        raise InputError(
            f"measurements must be at least 1 (got {measurements}), seeds at least 2 (got {seeds}), bins at least 0 "
            f"(got {bins})."
        )
    _check_bins(bins)
    if texts and bins:
        raise InputError(f"{bins} bins hold the probabilities of all texts in the first one; leave `bins` out.")
    chosen, units = _chosen(records, examples), None if groups is None else _numbered(groups, examples)
    members = np.bincount(examples.labels, minlength=len(examples.class_names))
    if np.count_nonzero(members) < 2 and not texts:
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
    # The logarithm of a text's probability is the sum over its tokens; a learner gives their mean.
    tokens = counted_tokens(examples.take(chosen)) if texts else None
    scale = np.ones((len(chosen), 1)) if tokens is None else tokens[:, None]
    *of_keys, of_floor = execution.split(*[models] * len(keys), floor_models)
    parts, exact, accuracy, bounds, likelihoods = [], np.zeros(len(chosen)), 0.0, [], []
    for one, part in zip(keys, of_keys, strict=True):
        left = leave_out(one, examples, learner, chosen, groups=units, execution=part)
        if tokens is not None:
            likelihoods.append([float(of_record.mean()) for of_record in left])
            left = LeftOut(left.with_record * scale, left.without_record * scale)
        parts.append(pdtp(left.with_record, left.without_record, bins=bins))
        exact += pdtp(left.with_record, left.without_record, bins=0).values / len(keys)
        if isinstance(learner, BoundsDTP) and units is None:
            bound = learner.dtp_bound(examples.labels, examples.labels[chosen], left)
            bounds += [] if bound is None else [bound]
        accuracy += float((left.with_record.argmax(axis=1) == examples.labels[chosen]).mean()) / len(keys)
    values = np.stack([part.values for part in parts])
    largest = values.argmax(axis=0), np.arange(len(chosen))
    floor = SeedFloor(np.zeros(len(chosen)), np.zeros(len(chosen)))
    if seeded:
        all_keys = join_keys([keys_at(keys, slice(1)), several(stream(key, "seed floor"), seeds - 1)])
        outputs = outputs_of_seeds(all_keys, examples, learner, chosen, execution=of_floor)
        floor = seed_floor(outputs if tokens is None else outputs * scale, bins=bins)
    return PDTPAudit(
        records=chosen,
        values=values.mean(axis=0),
        exact=exact,
        dtp_bound=np.mean(bounds, axis=0) if bounds else None,
        classes=np.stack([part.classes for part in parts])[largest],
        directions=np.stack([part.directions for part in parts])[largest],
        floor=floor,
        duplicates=duplicates(examples)[chosen],
        only_member=(members[examples.labels[chosen]] == 1) & (not texts),
        measurements=values,
        class_names=examples.class_names,
        train_accuracy=None if texts else accuracy,
        examples=len(examples),
        bins=bins,
        seeded=seeded,
        largest_possible=learner.largest_dtp if isinstance(learner, BoundsDTP) and units is None else None,
        groups=None if units is None else units[chosen],
        largest_group=1 if units is None else int(np.bincount(units).max()),
        tokens=tokens,
        log_likelihoods=tuple(np.mean(likelihoods, axis=0).tolist()) if likelihoods else None,
    )


def reduce_pdtp(
    key: Key[Array, ""],
    examples: Examples,
    learner: Learner,
    steps: int,
    *,
    bins: int = BINS,
    execution: Execution = DEFAULT_EXECUTION,
) -> Reduction:
    """Removes the riskiest record and measures all remaining records, `steps` times (section 8 of the paper, figure 6).

    Removing a record can expose similar records, so the largest value can rise again and is measured after every
    removal. If values are tied, the first record is removed.

    Args:
        key: random key, the same for every model.
        steps: records to remove, one at a time.
        examples, learner, bins, execution: as for `measure_pdtp`.

    Raises:
        InputError: `steps` would leave fewer than two records.
    """
    _check_bins(bins)
    check_steps(steps, len(examples))
    remaining = np.arange(len(examples))
    removed, largest = [], []
    for step, part in enumerate(execution.split(*[1.0] * (steps + 1))):
        rest = examples.take(remaining)
        left = leave_out(key, rest, learner, np.arange(len(rest)), execution=part)
        values = pdtp(left.with_record, left.without_record, bins=bins).values
        riskiest = int(values.argmax())
        largest.append(float(values[riskiest]))
        if step < steps:
            removed.append(int(remaining[riskiest]))
            remaining = np.delete(remaining, riskiest)
    return Reduction(tuple(removed), tuple(largest))


def check_steps(steps: int, records: int) -> None:
    """Rejects a number of removals below 1, or one that would leave fewer than two records."""
    if not 1 <= steps <= records - 2:
        raise InputError(
            f"{steps} records cannot be removed one at a time from {records}: at least 1, and two must remain."
        )


def _numbered(groups: np.ndarray, examples: Examples) -> np.ndarray:
    values = checked_groups(groups, "training set")
    if len(values) != len(examples) or len(np.unique(values)) < 2:
        raise InputError(
            f"`groups` has {len(values)} values, {len(np.unique(values))} of them different, and {examples.name} has "
            f"{len(examples)} records: give one value per record, and at least two different ones."
        )
    return number_groups(values)


def _check_bins(bins: int) -> None:
    check_bins(bins)
    if bins == 1:
        raise InputError(
            "with 1 bin all outputs are equal and every classifier would pass: give at least 2 bins (the paper has "
            "100), or 0 for none."
        )


def _chosen(records: np.ndarray | None, examples: Examples) -> np.ndarray:
    if records is None:
        return np.arange(len(examples))
    if len(records) == 0 or len(np.unique(records)) < len(records):
        raise InputError(
            "no record to measure was given, or one was given twice: give at least one index, all distinct."
        )
    if not 0 <= records.min() <= records.max() < len(examples):
        wrong = records.min() if records.min() < 0 else records.max()
        raise InputError(
            f"record {wrong} does not exist: {examples.name} has {len(examples)} records, numbered from 0."
        )
    return np.asarray(records)
