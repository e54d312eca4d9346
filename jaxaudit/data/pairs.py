"""Two data sets side by side: their classes brought into one order, and records or outputs that they share."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.errors import InputError, few


def _with_records(examples: Examples) -> set[str]:
    return {examples.class_names[k] for k in np.unique(examples.labels)}


def align_classes(query: Examples, other: Examples) -> Examples:
    """`other` with its labels in the class order of `query`, matched by class name.

    Guarantees: same records in the same order, the `class_names` of `query`, and every class with a record in one set
    has a record in the other. Names without a record on either side are ignored.

    >>> query = Examples(np.zeros((2, 1)), np.array([0, 1]), ("cat", "dog"), "query")
    >>> other = Examples(np.zeros((3, 1)), np.array([0, 1, 1]), ("dog", "cat"), "other")
    >>> align_classes(query, other).labels
    array([1, 0, 0], dtype=int32)
    """
    other = _with_columns_of(query, other)
    own_names, other_names = _with_records(query), _with_records(other)
    troubles = [
        f"only {examples.name} has records of class {few(repr(name) for name in examples.class_names if name in names)}"
        for examples, names in ((query, own_names - other_names), (other, other_names - own_names))
        if names
    ]
    if troubles:
        raise InputError(
            f"the classes of {query.name} and {other.name} differ: {' and '.join(troubles)}. Use the same class names "
            "in both (folder names, text labels, or an array class_names in the .npz), and records of the same classes."
        )
    return _reordered(query, other)


def _reordered(query: Examples, other: Examples) -> Examples:
    """`other` with the classes of `query`, which lacks only names without a record."""
    index = {name: k for k, name in enumerate(query.class_names)}
    table = np.array([index.get(name, -1) for name in other.class_names], np.int32)
    return replace(other, labels=table[other.labels], class_names=query.class_names)


def align_dealt(query: Examples, other: Examples) -> Examples:
    """`other`, records of the provider of `query`, with its classes and its columns, by their names.

    Nothing is matched by place: files that name classes or columns differently would be compared with wrong answers.

    >>> query = Examples(np.zeros((2, 1)), np.array([0, 1]), ("cat", "dog"), "query")
    >>> holdout = Examples(np.zeros((2, 1)), np.array([0, 0]), ("dog", "cat"), "holdout")
    >>> align_dealt(query, holdout).labels
    array([1, 1], dtype=int32)
    """
    strange = _with_records(other) - set(query.class_names)
    if strange:
        raise InputError(
            f"{other.name} has records of class {few(map(repr, sorted(strange)))}, which {query.name} does not name: "
            f"its classes are {few(map(repr, query.class_names))}; name classes alike in both, with words or with "
            "numbers."
        )
    return _reordered(query, _with_columns_of(query, other))


def align_sets(sets: Sets[Examples]) -> Sets[Examples]:
    """All sets with the classes and the columns of the query set; the calibration set must have records of all."""
    query = sets[Role.QUERY]

    def aligned(role: Role, examples: Examples) -> Examples:
        if role == Role.CALIBRATION:
            return align_classes(query, examples)
        return examples if role == Role.QUERY else align_dealt(query, examples)

    return sets.map(aligned)


def _with_columns_of(query: Examples, other: Examples) -> Examples:
    """`other` with the columns of `query` in the same order, where they have names; one set alone may not have any."""
    if other.titles == query.titles:
        return other
    if not query.titles or not other.titles:
        table, arrays = (query, other) if query.titles else (other, query)
        if table.inputs.shape[1:] != arrays.inputs.shape[1:]:
            return other  # they are refused for that
        raise InputError(
            f"{table.name} names its columns and {arrays.name} does not, so nobody can tell whether they are in one "
            "order; give both as tables with the same names of columns, or both as arrays: `records = "
            "jaxaudit.load(TABLE); numpy.savez(ARRAYS, x=records.inputs, y=records.labels, "
            "class_names=records.class_names)`."
        )
    missing = [title for title in query.titles if title not in other.titles]
    further = [title for title in other.titles if title not in query.titles]
    if missing or further:
        lacks = f"lacks the columns {few(map(repr, missing))}" if missing else ""
        has = f"has the columns {few(map(repr, further))} beside" if further else ""
        raise InputError(
            f"{other.name} {' and '.join(filter(None, (lacks, has)))}, so its records are not described as those of "
            f"{query.name}; give both the same columns: words that pandas.get_dummies encodes, of all "
            "files together."
        )
    places = [other.titles.index(title) for title in query.titles]
    note = f"columns are matched with those of {query.name} by name"
    return replace(other, inputs=other.inputs[:, places], titles=query.titles, notes=(*other.notes, note))


HOLDOUT, MEMBERS, CALIBRATION = "holdout", "members", "calibration set"
SAME = 0.5
"""The share of rows from which on outputs on different records are copies, if so many are equal, and all different."""
LEAST_SAME = 8
"""Different rows that must be equal: of fewer records, coarse outputs are the same by chance."""
MEANING = {
    HOLDOUT: "a holdout has records of the query set's provider that nobody trained on",
    MEMBERS: "known members are records that the target did use, and that are in no other set",
    CALIBRATION: "a calibration set holds no record of the query set",
}


def find_overlap(
    query: Examples, calibration: Examples
) -> tuple[Int[np.ndarray, " shared"], Int[np.ndarray, " shared"]]:
    """The calibration records that equal a query record in shape, number type and values, whatever their labels.

    Returns the first query record that each equals, and their indices, ascending; a record may be there twice.

    Apply the same preprocessing to both sets first. O((q + c) log q) after hashing.

    Reference: Liu & Tsaftaris (2020), section 2: the calibration set holds no element of the query set.

    >>> query = Examples(np.array([[1.0], [2.0]]), np.array([0, 1]), ("a", "b"), "query")
    >>> calibration = Examples(np.array([[3.0], [2.0]]), np.array([0, 0]), ("a", "b"), "calibration")
    >>> find_overlap(query, calibration)
    (array([1]), array([1]))
    """
    query_inputs, other = query.inputs, calibration.inputs
    if (query_inputs.shape[1:], query_inputs.dtype) != (other.shape[1:], other.dtype):
        raise InputError(
            f"{query.name} has {query_inputs.dtype} records of shape {query_inputs.shape[1:]} but {calibration.name} "
            f"has {other.dtype} records of shape {other.shape[1:]}; convert both to the same shape and type "
            "first (`image_size` for images)."
        )
    # As byte strings, not as void: NumPy compares byte strings with memcmp, and void values one by one in Python.
    query_hashes, other_hashes = query.record_hashes.view("S16"), calibration.record_hashes.view("S16")
    order = np.argsort(query_hashes, kind="stable")
    ordered = query_hashes[order]
    index = np.searchsorted(ordered, other_hashes).clip(max=len(ordered) - 1)
    calibration_indices = np.flatnonzero(ordered[index] == other_hashes)
    return order[index[calibration_indices]], calibration_indices


def drop_overlap(query: Examples, calibration: Examples) -> Examples:
    """`calibration` without the records that also occur in `query`, in unchanged order; some must remain."""
    _, rows = find_overlap(query, calibration)
    if not len(rows):
        return calibration
    if len(rows) == len(calibration):
        raise InputError(
            f"all {len(rows)} records of {calibration.name} also occur in {query.name}: no record remains for the "
            "calibration set; is it the same data set? Choose another one."
        )
    return calibration.take(np.delete(np.arange(len(calibration)), rows))


def refuse_held(
    other: Examples, held: Examples, role: str, advice: str = "use `drop_overlap` to leave them out", of: str = HOLDOUT
) -> None:
    """Checks that a set of known use, `held`, shares no record with one of another `role`; `of` is its own."""
    shared = find_overlap(other, held)
    if len(shared[0]):
        raise InputError(f"{_shared(shared, other, held)}, as {of} and {role}; {MEANING[of]}: {advice}.")


def _shared(shared: tuple[np.ndarray, np.ndarray], query: Examples, other: Examples) -> str:
    """How many records are shared, and the first of them by its places; never their content."""
    first, second = (int(rows[0]) for rows in shared)
    return (
        f"{len(shared[0])} of the {len(other)} records of {other.name} also occur in {query.name} (the first is record "
        f"{second} there and {first} here, from 0)"
    )


def are_copies(first: Float[np.ndarray, "n classes"], second: Float[np.ndarray, "m classes"]) -> bool:
    """Whether outputs on different records are the same, row by row, in more than half of the rows.

    Outputs of which most rows are alike, such as those of a small tree, and those on few records, are left alone.

    >>> one = np.linspace(0, 1, 20).reshape(10, 2)
    >>> are_copies(one, one), are_copies(one, one[::-1]), are_copies(one[:3], one[:3])
    (True, False, False)
    """
    if first.shape != second.shape:
        return False
    same = (first == second).all(axis=1)
    enough = max(LEAST_SAME - 1, SAME * len(first))
    return bool(same.sum() > enough) and len(np.unique(first[same], axis=0)) > enough
