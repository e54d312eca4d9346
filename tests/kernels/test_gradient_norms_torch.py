"""Squared gradient norms against PyTorch's and BackPACK's, for random networks."""

import warnings

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
    found = crosscheck.check(seed)
    assert found["contracted"] == found["leaves"]
    assert found["float64 against loop"] < 1e-10
    assert found.get("float64 against BackPACK", 0) < 1e-10
    assert found["float32 against loop"] < crosscheck.PROMISED
