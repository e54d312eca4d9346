"""Real data that comes with scikit-learn and needs no network."""

from typing import Any

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.tables.table import Column, Table


def digits() -> Examples:
    """The 1,797 handwritten digits that scikit-learn carries, as `uint8[1797, 8, 8]`, white ink on black.

    scikit-learn stores 17 gray levels v = 0..16 (counts of set pixels in 4x4 blocks). They become round(v *
    255 / 16), which is one-to-one: the level is `round(pixel * 16 / 255)`.

    Source: E. Alpaydin, C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI, CC BY 4.0 (its test
        part).

    >>> digits()
    Examples(digits: 1797 records of shape (8, 8), 10 classes)
    """
    # Imported here because scikit-learn takes about a second to import.
    from sklearn.datasets import load_digits

    levels, labels = load_digits(return_X_y=True)
    images = np.rint(levels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return Examples(images, labels.astype(np.int32), tuple("0123456789"), "digits")


def breast_cancer() -> Table:
    """569 tumours, 30 numbers each of how the nuclei of their cells look; malignant or benign.

    Source: W. Wolberg, O. Mangasarian, N. Street, W. Street (1995), Breast Cancer Wisconsin (Diagnostic), UCI, CC BY
        4.0.

    >>> breast_cancer()
    Table(breast-cancer: 569 records of 30 columns, 30 of them numeric, 2 classes)
    """
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
