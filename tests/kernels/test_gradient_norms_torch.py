"""Squared gradient norms against PyTorch's and BackPACK's, for random networks."""

import warnings

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (the bench extra)")
with warnings.catch_warnings():  # of BackPACK's import
    warnings.simplefilter("ignore")
    pytest.importorskip("backpack", reason="BackPACK is not installed (the bench extra)", exc_type=ImportError)
    crosscheck = pytest.importorskip(
        "experiments.crosscheck.fisher_trace", reason="the repository's root is not on the path"
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [0, 3, 5])
def test_pytorch_finds_the_same_norms(seed: int):
    _, paths = crosscheck.ours(crosscheck.draw(seed), np.float64)
    assert set(paths.values()) == {"contracted"}
    gaps = crosscheck.gaps_of(seed)
    assert gaps["float64", crosscheck.LOOP] < 1e-10
    assert gaps.get(("float64", crosscheck.BACKPACK), 0) < 1e-10
    assert gaps["float32", crosscheck.LOOP] < crosscheck.PROMISED
