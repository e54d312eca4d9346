"""Tables known by name, which come with scikit-learn."""

from typing import Any

import numpy as np

from jaxaudit.data import Table, category_counts, load_table


def test_embedded_tables_are_those_of_scikit_learn():
    from sklearn.datasets import load_breast_cancer, load_wine

    pairs: list[tuple[Table, Any]] = [
        (load_table("breast-cancer"), load_breast_cancer()),
        (load_table("wine"), load_wine()),
    ]
    for table, bunch in pairs:
        assert np.array_equal(table.values, bunch.data)
        assert np.array_equal(table.labels, bunch.target)
        assert table.class_names == tuple(bunch.target_names)
        assert [column.name for column in table.columns] == list(bunch.feature_names)
        assert not any(category_counts(table))
