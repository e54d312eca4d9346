"""What `error_rates` says of itself in `experiments/README.md`."""

from typing import Any

from experiments.error_rates_page import share
from experiments.summary import Row

METHODS = {
    "holdout": "holdout test",
    "reference": "reference test",
    "shadow": "shadow test",
    "rho": "rho",
    "ema": "EMA",
}
ASKED = {
    "false alarms": 'never used, called "not forgotten"',
    "wrong forgotten, all used": 'all used, called "forgotten"',
    "found, all used, large": "all of 1,000 or more used, found",
}


def summary(result: dict[str, Any]) -> list[Row]:
    rates = result["rates"]
    overall = rates["overall"]
    return [
        Row(
            "liu2020",
            "Error rates",
            f"{name}: {', '.join(METHODS.values())}",
            "none given",
            ", ".join(share(overall[method][key]) for method in METHODS),
            f"Over {rates['targets']:,} targets of known truth in {rates['worlds']} worlds; intervals, and where each "
            "method fails, are on the page.",
            "--cache FOLDER",
        )
        for key, name in ASKED.items()
    ]
