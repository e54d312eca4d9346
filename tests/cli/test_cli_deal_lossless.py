"""What `jaxaudit deal` writes has every value as it was given: nothing is rounded, cut or turned on the way."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.cli_runs import jaxaudit


def both_sides(data: str, *words: str, out: str = "deal") -> dict[str, np.ndarray]:
    """The arrays of query set and holdout, one after the other."""
    done = jaxaudit("deal", data, *words, "--out", out)
    assert done.code == 0, done.err
    sides = []
    for side in ("query", "holdout"):
        with np.load(f"{out}/{side}.npz", allow_pickle=False) as found:
            sides.append(dict(found))
    return {name: np.concatenate([side[name] for side in sides]) for name in sides[0] if name != "class_names"}


def sorted_rows(array: np.ndarray) -> list[list[float]]:
    return sorted(array.reshape(len(array), -1).tolist())


@pytest.mark.parametrize("form", ["png", "tif", "pgm"])
def test_scans_of_16_bits_keep_all_gray_levels(sets: Path, form: str) -> None:
    """Of 12-bit values in 16 bits: 60 different scans, of which 8 bits would leave a few dozen levels."""
    scans = np.random.default_rng(9).integers(0, 1177, (60, 16, 16)).astype(np.uint16)
    for row, scan in enumerate(scans):
        Path(f"scans/{'ab'[row % 2]}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(scan).save(f"scans/{'ab'[row % 2]}/{row:03}.{form}")
    found = both_sides("scans")
    assert found["x"].dtype == np.uint16
    assert sorted_rows(found["x"]) == sorted_rows(scans)
    record = json.loads(Path("deal/deal.json").read_text())
    assert (record["source"]["groups"], record["copies"], record["by_groups"]) == (60, 0, False)
    # Judged, levels are shares of the scale of 16 bits, and two that differ by one stay apart.
    sets_of = ("--query", "deal/query.npz", "--holdout", "deal/holdout.npz")
    done = jaxaudit("shadows", "plan", *sets_of, "--models", "19", "--out", "bank")
    assert done.code == 0, done.err
    assert "up to 1,176 of 65,535" in done.err
