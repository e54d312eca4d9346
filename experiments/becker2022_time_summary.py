"""What `becker2022_time` says of itself in `experiments/README.md`."""

from typing import Any

from experiments.summary import Row


def summary(result: dict[str, Any]) -> list[Row]:
    ours, theirs = (result["seconds_in_all"][side] / 60 for side in ("jaxaudit", "PyTorch loop"))
    return [
        Row(
            "becker2022",
            "Time",
            "minutes for the whole MNIST protocol, attacks included",
            f"not given; a PyTorch loop in the authors' manner takes {theirs:.0f}",
            f"{ours:.0f}",
            f"{result['ratio']:.1f} times as fast; both extrapolated from parts, side by side on one machine.",
        )
    ]
