"""The counts of `bench.device`, and the page that `python -m bench.readme` writes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


COUNTS = """
from bench.device import counting, networks
weights = 784 * 512 + 512 * 256 + 256 * 128 + 128 * 10
step = counting.of_step(networks.mlp((784,), (512, 256, 128), 10), (784,), 128)
assert step.flops == 6 * 128 * weights - 2 * 128 * 784 * 512
assert step.bytes == 24 * (weights + 512 + 256 + 128 + 10) + 2 * 4 * 128 * (784 + 512 + 256 + 128 + 10)
step = counting.of_step(networks.cnn((8, 8, 3), 10), (8, 8, 3), 2, bytes_a_number=2)
first, second, dense = 64 * 9 * 3 * 32, 16 * 9 * 32 * 64, 4 * 64 * 128 + 128 * 10
assert step.flops == 2 * 2 * (2 * first + 3 * second + 3 * dense)
weights = 9 * 3 * 32 + 32 + 9 * 32 * 64 + 64 + dense + 128 + 10
assert step.bytes == 24 * weights + 2 * 2 * 2 * (192 + 64 * 32 + 16 * 64 + 128 + 10)
"""


PAGE = "from bench.readme import README, page; assert README.read_text(encoding='utf-8') == page()"


@pytest.mark.outer
@pytest.mark.parametrize("code", [COUNTS, PAGE], ids=["steps counted by hand", "the page of measurements"])
def test_it_holds(code: str):
    """Else the page is remade by `python -m bench.readme`."""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
