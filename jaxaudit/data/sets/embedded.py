"""Real data that comes with this package and needs no network: three small sets of the UCI repository, in `uci.npz`."""

from importlib.resources import files

import numpy as np

from jaxaudit.data.examples import Examples


def digits() -> Examples:
    """1,797 handwritten digits as `uint8[1797, 8, 8]`, white ink on black.

    The source has 17 gray levels v = 0..16 (counts of set pixels in 4x4 blocks). They become round(v * 255 / 16), which
    is one-to-one: the level is `round(pixel * 16 / 255)`.

    Source: E. Alpaydin, C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI, CC BY 4.0 (its test
        part).

    >>> digits()
    Examples(digits: 1797 records of shape (8, 8), 10 classes)
    """
    levels, labels = stored("digits", "digits_classes")
    images = np.rint(levels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return Examples(images, labels.astype(np.int32), tuple("0123456789"), "digits")


def stored(*names: str) -> tuple[np.ndarray, ...]:
    """These arrays of `uci.npz`."""
    with (files("jaxaudit.data.sets") / "uci.npz").open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return tuple(archive[name] for name in names)
