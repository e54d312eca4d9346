"""Makes a cross-check, and keeps what it says.

    python -m experiments.crosscheck NAME [FOLDER ...]

The folders are clones of the repositories whose code is run: see `metrics` and `record_attacks`.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from experiments.crosscheck import Check

RESULTS = Path(__file__).parent / "results"
ALWAYS = ("jaxaudit", "jax", "numpy")
CHECKS = {
    "fisher_trace": ("fisher_trace", ("jaxlib", "flax", "optax", "torch", "backpack-for-pytorch")),
    "pdtp": ("metrics", ("adversarial-robustness-toolbox", "scikit-learn")),
    "untargeted_attack": ("metrics", ("adversarial-robustness-toolbox", "scikit-learn")),
    "ranking_jax_privacy": ("metrics", ("jax-privacy",)),
    "unlearning_scores": ("metrics", ("torch", "scipy")),
    "record_attacks": ("record_attacks", ("scipy",)),
    "record_attacks_tools": ("record_attacks", ("scipy",)),
}
"""By name, the module that has it as a function, and the packages whose versions are kept."""


def check_of(name: str) -> Callable[..., Iterable[Check]]:
    """The function that makes a check; it takes the folders."""
    return getattr(import_module(f"experiments.crosscheck.{CHECKS[name][0]}"), name)


def run(name: str, check: Callable[[], Iterable[Check]], packages: tuple[str, ...], directory: Path = RESULTS) -> None:
    """Checks, prints, and writes `NAME.json`; the exit status is 1 where a difference is above its tolerance."""
    started = time.time()
    checks = list(check())
    record = {
        "crosscheck": name,
        "versions": {package: version(package) for package in (*ALWAYS, *packages)},
        "python": platform.python_version(),
        "seconds": round(time.time() - started, 1),
        "checks": [
            {
                **one._asdict(),
                "difference": float(one.difference),
                "tolerance": float(one.tolerance),
                "holds": one.holds,
            }
            for one in checks
        ],
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    for one in checks:
        print(f"{'ok ' if one.holds else 'NOT'} {one.difference:.2g} (at most {one.tolerance:.2g}): {one.what}")
    sys.exit(0 if all(one.holds for one in checks) else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=list(CHECKS))
    parser.add_argument("folders", nargs="*", type=Path)
    arguments = parser.parse_args()
    run(arguments.name, partial(check_of(arguments.name), *arguments.folders), CHECKS[arguments.name][1])


if __name__ == "__main__":
    main()
