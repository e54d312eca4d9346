"""Real tables that come with scikit-learn and need no network."""

from typing import Any

import numpy as np

from jaxaudit.data.tables.table import Column, Table


def breast_cancer() -> Table:
    """569 tumours, 30 numbers each of how the nuclei of their cells look; malignant or benign.

    Source: W. Wolberg, O. Mangasarian, N. Street, W. Street (1995), Breast Cancer Wisconsin (Diagnostic), UCI, CC BY
        4.0.

    >>> breast_cancer()
    Table(breast-cancer: 569 records of 30 columns, 30 of them numeric, 2 classes)
    """
    # Imported here because scikit-learn takes about a second to import.
    from sklearn.datasets import load_breast_cancer

    return _table(load_breast_cancer(), "breast-cancer")


def wine() -> Table:
    """178 wines of three growers, 13 numbers each of a chemical analysis.

    Source: S. Aeberhard, M. Forina (1992), Wine, UCI, CC BY 4.0.

    >>> wine()
    Table(wine: 178 records of 13 columns, 13 of them numeric, 3 classes)
    """
    from sklearn.datasets import load_wine

    return _table(load_wine(), "wine")


def _table(bunch: Any, name: str) -> Table:
    columns = tuple(Column(str(feature), None) for feature in bunch.feature_names)
    return Table(bunch.data, columns, bunch.target.astype(np.int32), tuple(map(str, bunch.target_names)), name)
