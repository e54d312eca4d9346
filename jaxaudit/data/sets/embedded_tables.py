"""Real tables that come with this package and need no network."""

import numpy as np

from jaxaudit.data.sets.embedded import stored
from jaxaudit.data.tables.table import Column, Table


def breast_cancer() -> Table:
    """569 tumours, 30 numbers each of how the nuclei of their cells look; malignant or benign.

    Source: W. Wolberg, O. Mangasarian, N. Street, W. Street (1995), Breast Cancer Wisconsin (Diagnostic), UCI, CC BY
        4.0.

    >>> breast_cancer()
    Table(breast-cancer: 569 records of 30 columns, 30 of them numeric, 2 classes)
    """
    return _table("breast-cancer")


def wine() -> Table:
    """178 wines of three growers, 13 numbers each of a chemical analysis.

    Source: S. Aeberhard, M. Forina (1992), Wine, UCI, CC BY 4.0.

    >>> wine()
    Table(wine: 178 records of 13 columns, 13 of them numeric, 3 classes)
    """
    return _table("wine")


def _table(name: str) -> Table:
    values, labels, named, classes = stored(name, *(f"{name}_{of}" for of in ("classes", "columns", "class_names")))
    columns = tuple(Column(column, None) for column in named.tolist())
    return Table(values, columns, labels.astype(np.int32), tuple(classes.tolist()), name)
