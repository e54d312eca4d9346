"""The pieces, in the order in which they run, and how long each takes."""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from bench.device.measuring import Asked, Outcome

NETWORKS = ("ResNet-18", "ViT-S/16", "BERT-base", "GPT-2-small", "ResNet-50", "ViT-B/16")
"""Of gradient norms: those of `bench.large_networks`, which need not be imported to be listed."""


class Seconds(NamedTuple):
    """About how long a piece takes, compiling included, with all rivals installed."""

    gpu: int
    cpu: int
    reduced: int


class Piece(NamedTuple):
    """A part of the work; `run` fills in what comes out."""

    name: str
    seconds: Seconds
    run: Callable[[Asked, Outcome], None]


def _piece(name: str, gpu: int, cpu: int, reduced: int, module: str, *words: str) -> Piece:
    def run(asked: Asked, outcome: Outcome) -> None:
        import_module(f"bench.device.{module}").piece(asked, outcome, *words)

    return Piece(name, Seconds(gpu, cpu, reduced), run)


PIECES: tuple[Piece, ...] = (
    _piece("floors", 5, 5, 2, "floors"),
    _piece("training MLP", 90, 120, 30, "training", "MLP"),
    _piece("training Purchase", 90, 180, 30, "training", "Purchase"),
    _piece("training CNN", 110, 300, 40, "training", "CNN"),
    _piece("training ResNet", 130, 400, 90, "training", "ResNet"),
    _piece("leave one out", 40, 60, 15, "leave_one_out"),
    _piece("adapters", 100, 540, 60, "adapters"),
    _piece("ks", 15, 30, 5, "ks"),
    *(_piece(f"gradient norms {name}", 25, 120, 90, "gradient_norms", name) for name in NETWORKS),
    _piece("command", 60, 120, 60, "command"),
    _piece("bank", 60, 3600, 10, "bank"),
    _piece("tests", 185, 185, 30, "suite"),
)


def named(words: list[str]) -> list[Piece]:
    """The pieces of these names, or that begin with them; all, without any. Raises ValueError for an unknown name."""
    if not words:
        return list(PIECES)
    unknown = [word for word in words if not any(_is(piece, word) for piece in PIECES)]
    if unknown:
        raise ValueError(
            f"there is no piece {', '.join(unknown)}; there are {', '.join(piece.name for piece in PIECES)}"
        )
    return [piece for piece in PIECES if any(_is(piece, word) for word in words)]


def _is(piece: Piece, word: str) -> bool:
    return piece.name.lower() == word.lower() or piece.name.lower().startswith(f"{word.lower()} ")
