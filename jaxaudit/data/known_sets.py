"""Sets known by name, which come with a dependency and need no network: digits, tumours and wines of scikit-learn."""

from typing import Any

import numpy as np

from jaxaudit.data.examples import Examples
from jaxaudit.data.table import Column, Table


def digits() -> Examples:
    """The 1,797 handwritten digits that scikit-learn carries, as `uint8[1797, 8, 8]`, white ink on black.

    scikit-learn stores 17 gray levels v = 0..16 (counts of set pixels in 4x4 blocks). They become round(v * 255 / 16),
    which is one-to-one: the level is `round(pixel * 16 / 255)`.

    Source: E. Alpaydin, C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI, CC BY 4.0 (its test part).

    >>> digits()
    Examples(digits: 1797 records of shape (8, 8), 10 classes)
    """
    # Imported here because scikit-learn takes about a second to import.
    from sklearn.datasets import load_digits

    levels, labels = load_digits(return_X_y=True)
    images = np.rint(levels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return Examples(images, np.asarray(labels, np.int32), tuple("0123456789"), "digits")


def breast_cancer() -> Table:
    """569 tumours, 30 numbers each: W. Wolberg et al. (1995), Breast Cancer Wisconsin (Diagnostic), UCI, CC BY 4.0."""
    from sklearn.datasets import load_breast_cancer

    return _table(load_breast_cancer(), "breast-cancer")


def wine() -> Table:
    """178 wines of three growers, 13 numbers each: S. Aeberhard, M. Forina (1992), Wine, UCI, CC BY 4.0."""
    from sklearn.datasets import load_wine

    return _table(load_wine(), "wine")


def _table(bunch: Any, name: str) -> Table:
    columns = tuple(Column(str(feature)) for feature in bunch.feature_names)
    return Table(bunch.data, columns, bunch.target.astype(np.int32), tuple(map(str, bunch.target_names)), name)
