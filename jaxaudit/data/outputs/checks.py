"""What is checked of a model's outputs, beside the form of a file: rows, scale, and whether models are what they seem.

None repairs anything: what fails is said, and takes away the verdicts that rest on
it, or is refused. Of 2,000 made-up files each (100 to 2,000 rows, 2 to 50 classes) the checks of rows failed, for a
shift and as stale: in random order 0 and 0; sorted by class, some easy and others hard, 1 and 3; with skill that halves
along the file 0 and 0, that falls to a quarter 0 and 5, that ends in nothing 2 and 286; over-confident, weak or strong
models 0 and 0. The check of rows that were exchanged failed in none of these.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import special

Probabilities = Float[np.ndarray, "n classes"]
"""A model's probabilities, a row a record."""
Labels = Int[np.ndarray, " n"]
"""The class of each record."""
Numbers = Float[np.ndarray, " n"]
"""A number a record."""

LINE_LEVEL = 1e-4
"""How often a part of a file in line may be taken for one out of line: at most, of exchangeable records."""
SHIFTS, SURELY_SHIFTED = 20, 5.0
"""Rows by which a part may be shifted; the standard errors by which it must tell the labels there, which holds where
records become harder along a file, so that the level does not."""
LEAST_ROWS, LEAST_SHARE, WIDER, STEPS = 20, 0.05, 1.25, 8
"""Runs of rows: the shortest, in rows and as a share; how much longer the next are; the steps in its own length."""
AT_GUESSING, BESIDE, BESIDE_ERRORS, SURELY_TOLD = 0.2, 0.6, 3.5, 5.0
"""A stale run tells less than the first share of what is told beside it, where the second share of the usual is told.
It stands out by so many standard errors, as a model that slowly loses its skill does not, and the usual by so many."""
IN_ORDER = 4.0
"""Standard errors by which equal labels may be more or fewer at a distance than in a random order."""
RANK_LEVEL, SURE_LEVEL = 1e-2, 1e-3
"""How often a query set like the holdout may be taken for one that is answered more surely, and one like the members
for one that is answered less surely."""
UNLIKELY = 1e-6
"""Smaller probabilities count as this."""
LEAST, MOST_VOTES = 100, 999
"""Records from which on the scale of a set is compared; trees, or neighbours, up to which shares are known as votes."""
TWICE, TWICE_ROUNDING, TWICE_SHARE = 0.05, 0.02, 0.25
"""Of a second softmax taken back: how near 0 the lowest number of a row is, but for which rounding, in what share."""
SAME_MODEL = 0.02
"""Two models whose outputs differ by less than this share of their spread over records are one."""
_BLOCK, _MOST = 1 << 19, 1 << 20


class OutputCheck(NamedTuple):
    """A claim, and its failure in words with fields. Of right files at most 1 in 1,000 fails, `LINE_LEVEL` in line."""

    name: str
    says: str


ONE_ARRAY = OutputCheck(
    "one array of outputs",
    "{source}: contains the arrays {arrays}, and outputs are one: which model's, or which part, is meant? Save it "
    "alone, as by np.savez({source!r}, probabilities=outputs), and folds or batches as one np.concatenate of them.",
)
SHIFTED = OutputCheck(
    "rows in line, none shifted",
    "rows {first} to {last} of {rows} fit the records {size} row(s) further {way} far better than their own: was a "
    "record left out or doubled before them? Make the outputs anew, one row for each record",
)
STALE = OutputCheck(
    "rows in line, none stale",
    "rows {first} to {last} of {rows} tell nothing of their records' classes, while those beside them do: are they "
    "from another run, or of other records? Make the outputs anew in one run",
)
EXCHANGED = OutputCheck(
    "rows in line, none exchanged",
    "of {rows} rows, some fit the records {size} row(s) before or after them, in runs too short to be named: were rows "
    "exchanged, as where several processes write one file? Make the outputs anew, in the order of the records",
)
UNWRITTEN = OutputCheck(
    "rows written",
    "{blank} of {rows} rows have one number for every class, and so have {others} of {rest} on the other sets: were "
    "they never written, or filled in where the model gave no answer? Make the outputs anew, one row for each record",
)
TWICE_ON_SOME = OutputCheck(
    "softmax once",
    "the outputs on the {sets} went through a softmax twice, and others did not: make all files in one way",
)
UNSURE = OutputCheck(
    "as sure on all sets",
    "no probability on the {name} is above {surest:.3g}, and half of the largest on the {other} are above {usual:.3g}: "
    "one model is hardly so unsure on one set alone, unless it looks its records up, as nearest neighbours and narrow "
    "kernels do. Was one of the files made with another softmax, temperature or preprocessing? That looks like memory: "
    "make both in one way",
)
UNCHANGED = OutputCheck(
    "outputs changed",
    "The outputs after the deletion are those before it: the model is unchanged, or a file was sent twice.",
)
ONE_MODEL = OutputCheck(
    "one model once",
    "give nearly the same numbers: one model counts as two, and a model is no evidence against itself. Leave one out",
)
ONE_KIND = OutputCheck(
    "models of one kind",
    "is unlike all others: its log-odds are spread {times} as widely as theirs. Did it diverge, or was it saved on "
    "another scale? It would hide what the others show. Leave it out, or make its outputs again",
)


class OutputsBySet(NamedTuple):
    """A model's outputs `[records, classes]` and labels by set, of which the first is in question; and the name of a
    set that the model did not use, if there is one.
    """

    probabilities: Mapping[str, Probabilities]
    labels: Mapping[str, Labels]
    unseen: str | None = None


class OutOfLine(NamedTuple):
    """Rows from 0, without `stop`, that belong to the records so many rows further on (below 0: back; 0: unknown)."""

    start: int
    stop: int
    shift: int


def rows_out_of_line(outputs_by_set: OutputsBySet, *, by_heart: bool = False) -> dict[str, tuple[OutputCheck, str]]:
    """The check that the rows of a file fail, and what is wrong, in words, by set; of records in question that the
    model did not use, nothing more is known than of the unseen ones. A model that learned its members `by_heart` may
    say nothing of all others.
    """
    messages = {} if by_heart else unwritten_rows(outputs_by_set)
    first, name_unseen = next(iter(outputs_by_set.probabilities)), outputs_by_set.unseen
    for name, probabilities in outputs_by_set.probabilities.items():
        if name in messages:
            continue
        labels, unseen = outputs_by_set.labels[name], None
        if name == first and name_unseen is not None:
            unseen = outputs_by_set.probabilities[name_unseen], outputs_by_set.labels[name_unseen]
        run = shifted_rows(probabilities, labels) or stale_rows(probabilities, labels, unseen)
        if run is not None:
            check, way = SHIFTED if run.shift else STALE, "on" if run.shift > 0 else "back"
            where = {"first": run.start + 1, "last": run.stop, "rows": len(labels)}
            messages[name] = check, check.says.format(**where, size=abs(run.shift), way=way)
        elif distance := exchanged_rows(probabilities, labels):
            messages[name] = EXCHANGED, EXCHANGED.says.format(rows=len(labels), size=distance)
    return messages


def unwritten_rows(outputs_by_set: OutputsBySet) -> dict[str, tuple[OutputCheck, str]]:
    """The check of sets with more rows of one number for every class than chance deals to them, and words, by set.

    An array of zeros that a loop did not fill to its end is read as such rows. Of exchangeable records a set has as
    many, given how many all sets have, with the hypergeometric probability of Fisher's exact test (1935): at most
    `LINE_LEVEL`, here. Shares of votes tie by themselves, and are left alone.

    >>> outputs = special.softmax(np.random.default_rng(1).normal(0, 3, (300, 3)), axis=1)
    >>> zeros = np.where(np.arange(300)[:, None] < 285, outputs, 1 / 3)
    >>> list(unwritten_rows(OutputsBySet({"query set": outputs, "holdout": zeros}, {})))
    ['holdout']
    """
    outputs = outputs_by_set.probabilities
    blank = {name: int((np.ptp(numbers, axis=1) == 0).sum()) for name, numbers in outputs.items()}
    records, blanks = sum(map(len, outputs.values())), sum(blank.values())
    if not blanks or _are_shares_of_votes(np.concatenate([numbers.max(axis=1) for numbers in outputs.values()])):
        return {}
    # Imported here because it takes half a second, and nearly no file has such rows.
    from scipy.stats import hypergeom

    messages = {}
    for name, count in blank.items():
        size = len(outputs[name])
        if hypergeom.sf(count - 1, records, blanks, size) <= LINE_LEVEL:
            words = {"blank": count, "rows": size, "others": blanks - count, "rest": records - size}
            messages[name] = UNWRITTEN, UNWRITTEN.says.format(**words)
    return messages


def shifted_rows(probabilities: Probabilities, labels: Labels) -> OutOfLine | None:
    """The run of rows that fits the labels some rows further on or back far better than its own, if there is one.

    The statistic is the largest sum over a run, for any shift s up to `SHIFTS`, of the gain g = log p[i, y[i + s]] -
    log p[i, y[i]]. Let t be the positive root of E exp(t g) = 1 over random pairs of rows. Of exchangeable records a
    run from a given row on ever gains x with probability exp(-t x) at most (Ville 1939), all runs and shifts together
    `LINE_LEVEL`. Where a part of the file tells nothing, sums wander: so the run must also tell its shifted labels,
    `SURELY_SHIFTED` standard errors beyond these in random order (Hoeffding 1951). A model that answers with the label
    of the record before, as forecasts do, is taken for one whose rows are shifted.

    >>> labels = np.random.default_rng(1).integers(0, 5, 400)
    >>> known = 0.9 * np.eye(5)[labels] + 0.02
    >>> shifted_rows(known, labels), shifted_rows(np.concatenate([known[:300], known[301:], known[-1:]]), labels)
    (None, OutOfLine(start=299, stop=398, shift=1))
    """
    n = len(labels)
    exponent = _exponent(probabilities, labels)
    if not exponent:
        return None
    own_logs = _logs(probabilities[np.arange(n), labels])
    largest, run_found = float(np.log(2 * SHIFTS * n / LINE_LEVEL)) / exponent, None
    for size in range(1, min(SHIFTS, n // 4) + 1):
        for shift in (size, -size):
            rows = np.arange(max(0, -shift), n - max(0, shift))
            sums = np.concatenate([[0.0], np.cumsum(_logs(probabilities[rows, labels[rows + shift]]) - own_logs[rows])])
            gains = sums - np.minimum.accumulate(sums)
            stop = int(gains.argmax())
            if gains[stop] > largest:
                start = int(sums[: stop + 1].argmin())
                largest, run_found = float(gains[stop]), OutOfLine(int(rows[start]), int(rows[stop - 1]) + 1, shift)
    if run_found is None or _told(probabilities[run_found.start : run_found.stop], labels, run_found) < SURELY_SHIFTED:
        return None
    return run_found


def stale_rows(
    probabilities: Probabilities,
    labels: Labels,
    unseen: tuple[Float[np.ndarray, "m classes"], Int[np.ndarray, " m"]] | None = None,
) -> OutOfLine | None:
    """The run of rows that tells nothing of its labels, where those beside it tell much, if there is one.

    What a row tells is its log-likelihood of its label less the mean over labels drawn from the file. These numbers
    are ranked within each class, as files may be sorted by class. Of exchangeable records the mean rank of a run of m
    of n rows lies z sqrt((1 - m / n) / (12 m)) below the middle with probability exp(-z^2 / 2) at most, as ranks are
    spread no wider than uniform numbers (Hoeffding 1963, Serfling 1974); all runs together `LINE_LEVEL`. A skill
    that ends at once, as on records of another source, does look like a stale run. `unseen` has outputs and labels of
    records that the model did not use: a run of a query set rightly tells no more. Without, all rows should tell alike.

    >>> labels = np.random.default_rng(1).integers(0, 5, 400)
    >>> known = special.softmax(np.random.default_rng(2).normal(0, 1, (400, 5)) + 3 * np.eye(5)[labels], axis=1)
    >>> stale = np.concatenate([known[:200], known[:100], known[300:]])
    >>> stale_rows(known, labels), stale_rows(stale, labels)
    (None, OutOfLine(start=204, stop=303, shift=0))
    """
    n, classes = probabilities.shape
    skills, kinds = _told_by_rows(probabilities, labels), _common_classes(labels, classes)
    ranks = np.empty(n)
    for kind in np.unique(kinds):
        rows = np.flatnonzero(kinds == kind)
        ranks[rows] = (shared_ranks(skills[rows]) - 0.5) / len(rows) - 0.5
    reference, kinds_there = (
        (skills, kinds) if unseen is None else (_told_by_rows(*unseen), _common_classes(unseen[1], classes))
    )
    if reference.mean() < SURELY_TOLD * reference.std() / len(reference) ** 0.5:
        return None
    sizes, sums = (np.bincount(kinds_there, weights, minlength=classes + 1) for weights in (None, reference))
    usual = np.where(sizes > 0, sums / np.maximum(sizes, 1), reference.mean())[kinds]
    totals = np.pad(np.cumsum([ranks, skills, skills**2, usual], axis=1), ((0, 0), (1, 0)))
    best, run_found, runs, size = -np.inf, None, 0, max(LEAST_ROWS, int(np.ceil(LEAST_SHARE * n)))
    while size <= n // 2:
        start = np.unique(np.append(np.arange(0, n - size + 1, max(1, size // STEPS)), n - size))
        stop = start + size
        first, last = np.maximum(start - size, 0), np.minimum(stop + size, n)
        beside = last - first - size
        rank, of_run, square, of_usual = (totals[:, stop] - totals[:, start]) / size
        around = totals[:, last] - totals[:, stop] + totals[:, start] - totals[:, first]
        rank_beside, of_beside, _, usual_beside = around / beside
        deviation = np.sqrt(np.maximum(square - of_run**2, 0) / size)
        if unseen is None:
            # What is usual is what the other rows tell.
            rest = totals[3, -1] - size * of_usual
            of_usual = of_usual * (totals[1, -1] - size * of_run) / np.where(rest > 0, rest, np.inf)
        apart = (rank_beside - rank) / np.sqrt((1 / size + 1 / beside) / 12)
        nothing = (of_run < AT_GUESSING * np.minimum(of_beside, of_usual)) & (of_usual - of_run > 3 * deviation)
        sudden = (of_beside > BESIDE * usual_beside) & (apart > BESIDE_ERRORS)
        scores = np.where(nothing & sudden & (usual_beside > 0), -rank * np.sqrt(12 * size / (1 - size / n)), -np.inf)
        runs += len(start)
        if scores.max() > best:
            place = int(scores.argmax())
            best, run_found = float(scores[place]), OutOfLine(int(start[place]), int(stop[place]), 0)
        size = n // 2 if size < n // 2 < WIDER * size else int(np.ceil(WIDER * size))
    return run_found if best > np.sqrt(2 * np.log(max(runs, 1) / LINE_LEVEL)) else None


def exchanged_rows(probabilities: Probabilities, labels: Labels) -> int:
    """The distance in rows, up to `SHIFTS`, at which rows of a file fit the records further on or back; else 0.

    Let q be the probability that a row gives the label s rows on, and r the one that the row there gives the label of
    this, where the labels differ. Summed are q, r and, in stretches of s rows by turns, q r, each less its mean over
    all rows of the own labels. If a row's outputs tell nothing of the records beside it, a sum gains x with probability
    exp(-v h(x / v)) at most, where v is the sum of the variances within labels and h(u) = (1 + u) log(1 + u) - u
    (Bennett 1962); all sums together with `LINE_LEVEL`. Where errors come in spells, means and variances of q r are as
    many times as large as they are between `SHIFTS` and twice as many rows. A file in which equal labels are, at any of
    these distances, more or fewer than in a random order by `IN_ORDER` standard errors, as if sorted, is not looked at.

    >>> random = np.random.default_rng(1)
    >>> labels, swapped = random.integers(0, 5, 400), np.arange(400) + np.where(np.arange(400) < 40, [1, -1] * 200, 0)
    >>> known = special.softmax(random.normal(0, 1, (400, 5)) + 4 * np.eye(5)[labels], axis=1)
    >>> exchanged_rows(known, labels), exchanged_rows(known[swapped], labels)
    (0, 1)
    """
    n = len(labels)
    labels_seen, kinds, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means, variances = np.zeros((2, len(labels_seen), probabilities.shape[1]), np.float32)
    for kind in range(len(labels_seen)):
        rows = probabilities[kinds == kind]
        means[kind], variances[kind] = rows.mean(axis=0, dtype=float), rows.var(axis=0, dtype=float)
    alike, most = float(((counts / n) ** 2).sum()), min(SHIFTS, n // 4)
    if not most:
        return 0
    for size in range(1, most + 1):
        equal = np.count_nonzero(labels[size:] == labels[:-size]) - (n - size) * alike
        if abs(equal) > IN_ORDER * ((n - size) * alike * (1 - alike)) ** 0.5:
            return 0

    def given(rows: np.ndarray, other_labels: np.ndarray) -> np.ndarray:
        """The probabilities of these labels, their means and their variances, `[3, rows]`."""
        of_kinds = kinds[rows], other_labels
        return np.stack([probabilities[rows, other_labels], means[of_kinds], variances[of_kinds]])

    def fits(size: int) -> np.ndarray:
        """Sums, their means and their variances, `[3, 4]`: of q, of r, and of q r in either half of the stretches."""
        rows = np.flatnonzero(labels[size:] != labels[:-size])
        q, r = given(rows, labels[rows + size]), given(rows + size, labels[rows])
        spread = (q[2] + q[1] ** 2) * (r[2] + r[1] ** 2) - (q[1] * r[1]) ** 2
        products, turn = np.stack([q[0] * r[0], q[1] * r[1], spread]), rows // size % 2 == 0
        return np.stack(
            [part.sum(axis=1, dtype=float) for part in (q, r, products[:, turn], products[:, ~turn])], axis=1
        )

    far = np.sum([fits(size)[:2, 2:].sum(axis=1) for size in range(most + 1, 2 * most + 1, 4)], axis=0)
    spells = np.array([1, 1, *[max(1.0, far[0] / max(far[1], UNLIKELY))] * 2])
    best, distance = float(np.log(4 * SHIFTS / LINE_LEVEL)), 0
    for size in range(1, most + 1):
        sums, mean, variance = fits(size)
        gain, variance = (sums - spells * mean).clip(0), spells * variance + UNLIKELY
        strongest = float(((variance + gain) * np.log1p(gain / variance) - gain).max())
        if strongest > best:
            best, distance = strongest, size
    return distance


def softmaxed_twice(probabilities: Probabilities) -> bool:
    """Whether probabilities went through a softmax again, as if they had been logits.

    The second softmax can be taken back: log p, shifted so that a row sums to 1, are the probabilities before. None
    lies outside [0, 1] then, but for rounding, and the lowest of a row lies close to 0 in many rows, as if density
    broke off there. Outputs of one softmax have no such edge. Rows that are sure of nothing tell nothing.

    >>> once = special.softmax(np.random.default_rng(1).normal(0, 3, (200, 5)), axis=1)
    >>> softmaxed_twice(once), softmaxed_twice(special.softmax(once, axis=1))
    (False, True)
    """
    logs = _logs(_some(probabilities))
    before = logs + (1 - logs.sum(axis=1, keepdims=True)) / logs.shape[1]
    lowest = before.min(axis=1)
    edge, sure = lowest < TWICE, before.max(axis=1) > 0.5
    return bool(lowest.min() >= -TWICE_ROUNDING and edge.mean() >= TWICE_SHARE and 20 * sure.mean() >= 1)


def on_two_scales(outputs_by_set: OutputsBySet, *, by_heart: bool = False) -> str | None:
    """What shows that a model's files are on two scales, in words: a second softmax, or a set on which it is unsure.

    A model that was trained on a set is surer there, but of some other records it is as sure. Where of none, another
    softmax, temperature or preprocessing made one of the files, and that difference looks like memory. Of the first
    set, the records in question, a model that was made to forget them may rightly be sure of none. Shares of votes, and
    other numbers as coarse, are left alone. What a model learned `by_heart` it is rightly surer of.

    >>> random = np.random.default_rng(1)
    >>> sure, unsure = (special.softmax(random.normal(0, scale, (200, 3)), axis=1) for scale in (9.0, 0.3))
    >>> on_two_scales(OutputsBySet({"query set": unsure, "holdout": sure}, {}))
    >>> on_two_scales(OutputsBySet({"query set": sure, "holdout": unsure}, {}))[:35]
    'no probability on the holdout is ab'
    """
    outputs = outputs_by_set.probabilities
    twice = [name for name, probabilities in outputs.items() if softmaxed_twice(probabilities)]
    if twice and len(twice) < len(outputs):
        return TWICE_ON_SOME.says.format(sets=" and the ".join(twice))
    sureness = {name: numbers.max(axis=1) for name, numbers in outputs.items() if len(numbers) >= LEAST}
    first = next(iter(outputs))
    for name in (name for name in sureness if name != first):
        surest = float(sureness[name].max())
        for other, numbers in sureness.items():
            usual = float(np.median(numbers))
            pair = np.concatenate([sureness[name], numbers])
            if surest < usual and not (by_heart or _are_shares_of_votes(pair)):
                return UNSURE.says.format(name=name, surest=surest, other=other, usual=usual)
    return None


def of_one_model(first: Numbers, second: Numbers) -> bool:
    """Whether two arrays of log-odds are of one model, asked twice: rounded, in other batches, or byte for byte.

    They differ by less than `SAME_MODEL` of their standard deviation over records. Two trainings, even from one seed
    and on nearly the same records, are many times as far apart.

    >>> odds = np.random.default_rng(1).normal(0, 2, 500)
    >>> of_one_model(odds, odds.round(2)), of_one_model(odds, odds + np.random.default_rng(2).normal(0, 0.2, 500))
    (True, False)
    """
    spread = float(np.std(first))
    return float(np.std(first - second)) <= SAME_MODEL * spread and abs(float((first - second).mean())) <= spread / 10


def knows_members_alone(outputs_by_set: OutputsBySet, members: str) -> bool:
    """Whether the first set may be in order although its labels are missed, as those of the unseen set are.

    The caller has seen that outputs on the known members meet their labels. So the model may know its members alone,
    as one that learned them by heart does. Had it used the first set, it would answer that as surely as the members,
    in any order of rows. Its order is not in doubt if it is answered less surely than the members (Mann & Whitney 1947,
    p at most `SURE_LEVEL`), and no more surely than the unseen set (p above `RANK_LEVEL`).

    >>> random = np.random.default_rng(1)
    >>> sure, held, unsure = (special.softmax(random.normal(0, s, (300, 3)), axis=1) for s in (4.0, 0.5, 0.5))
    >>> outputs = {"query set": unsure, "holdout": held, "members": sure}
    >>> knows_members_alone(OutputsBySet(outputs, {}, "holdout"), "members")
    True
    >>> knows_members_alone(OutputsBySet(outputs | {"query set": sure}, {}, "holdout"), "members")
    False
    """
    first = next(iter(outputs_by_set.probabilities))
    assert outputs_by_set.unseen is not None
    names = (first, outputs_by_set.unseen, members)
    query, unseen, of_members = (outputs_by_set.probabilities[name].max(axis=1) for name in names)
    return _p_surer(of_members, query) <= SURE_LEVEL and _p_surer(query, unseen) > RANK_LEVEL


def shared_ranks(values: Numbers) -> Numbers:
    """Ranks from 1; equal values share the mean of theirs. NaN with a NaN among them.

    `scipy.stats`, whose `rankdata` this is, takes half a second to import, and this room knows no kernels.
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.where(np.isnan(values).any(), np.nan, (np.cumsum(counts) - (counts - 1) / 2)[places])


def _p_surer(first: Numbers, second: Float[np.ndarray, " m"]) -> float:
    """How often the first of two sets of one kind has ranks as high, by the normal approximation."""
    n, m = len(first), len(second)
    ranks = shared_ranks(np.concatenate([first, second]))
    variance = n * m / (n + m) * float(ranks.var(ddof=1))
    return float(special.ndtr((n * (n + m + 1) / 2 - ranks[:n].sum()) / variance**0.5)) if variance > 0 else 1.0


def _logs(probabilities: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(probabilities, UNLIKELY)).astype(np.float64)


def _some(rows: np.ndarray, columns: int = 0) -> np.ndarray:
    """Evenly spaced rows, so few that a copy of them in so many columns stays small."""
    return rows[:: -(-len(rows) * (columns or rows.shape[1]) // _MOST)]


def _told_by_rows(probabilities: Probabilities, labels: Labels) -> np.ndarray:
    """The log-likelihood of each row's label, less its mean over labels drawn from the file."""
    n, classes = probabilities.shape
    shares, rows = np.bincount(labels, minlength=classes) / n, max(1, _BLOCK // classes)
    usual = [_logs(probabilities[at : at + rows]) @ shares for at in range(0, n, rows)]
    return _logs(probabilities[np.arange(n), labels]) - np.concatenate(usual)


def _common_classes(labels: Labels, classes: int) -> Labels:
    """The labels, with one number for all classes of fewer than ten records."""
    return np.where(np.bincount(labels, minlength=classes) < 10, classes, np.arange(classes))[labels]


def _exponent(probabilities: Probabilities, labels: Labels) -> float:
    """The positive t at which exp(t g) is 1 in the mean over random pairs of rows, at most 1; 0 without skill."""
    n, classes = probabilities.shape
    shares, logs = np.bincount(labels, minlength=classes) / n, _logs(_some(probabilities))
    gains = logs - logs[np.arange(len(logs)), _some(labels, classes), None]

    def mean_power(exponent: float) -> float:
        return float((np.exp(exponent * gains) @ shares).mean())

    low, high = 1e-4, 1.0
    if mean_power(low) >= 1:
        return 0.0
    if mean_power(high) <= 1:
        return 1.0
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (low, middle) if mean_power(middle) > 1 else (middle, high)
    return low


def _told(outputs: Float[np.ndarray, "run classes"], labels: Labels, run: OutOfLine) -> float:
    """What a run's outputs tell of the shifted labels, in standard errors of these labels in random order."""
    logs = _logs(_some(outputs))
    shifted = _some(labels[run.start + run.shift : run.stop + run.shift], outputs.shape[1])
    counts = np.bincount(shifted, minlength=logs.shape[1])
    of_rows = logs @ counts / len(logs)
    apart = logs - of_rows[:, None] - logs.mean(axis=0) + of_rows.mean()
    variance = float((apart**2 @ counts).sum()) / max(1, len(logs) - 1)
    total = float((logs[np.arange(len(logs)), shifted] - of_rows).sum())
    return total / variance**0.5 if variance > 0 else 0.0


def _are_shares_of_votes(numbers: Numbers) -> bool:
    """Whether all numbers are whole shares of one number of votes, up to the rounding of six decimals.

    >>> _are_shares_of_votes(np.array([0.333333, 0.5])), _are_shares_of_votes(np.array([0.3141, 0.5]))
    (True, False)
    """
    distinct = np.unique(numbers).astype(np.float64)
    if len(distinct) > MOST_VOTES + 1:
        return False
    votes = np.arange(1, MOST_VOTES + 1)
    counts = distinct[:, None] * votes
    return bool((np.abs(counts - np.rint(counts)) <= 1e-6 * votes).all(axis=0).any())
