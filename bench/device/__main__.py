"""`python -m bench.device`: see `bench/device/__init__.py`."""

import argparse
import gc
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".6")  # the rest of the memory of a GPU is PyTorch's

import jax

from bench.device import results
from bench.device.measuring import RIVALS, Asked, Outcome
from bench.device.pieces import Piece, named
from bench.harness import print_bench

LONGEST, LEAST = 1.5, 60
"""A piece leaves out what has not begun after so many times its estimate, or so many seconds, whichever is longer."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.device", description="All checks and tables of this device.")
    parser.add_argument("--dry-run", action="store_true", help="list the pieces and how long they take")
    parser.add_argument("--piece", nargs="+", default=[], metavar="NAME", help="these, or all that begin so")
    parser.add_argument("--again", action="store_true", help="measure, and choose, also what has a result")
    parser.add_argument("--reduced", action="store_true", help="in sizes that show only that it runs")
    parser.add_argument("--minutes", type=float, default=9, metavar="M", help="start nothing that would end later")
    parser.add_argument(
        "--rivals", default=",".join(RIVALS), metavar="FORMS", help="of PyTorch, by commas: %(default)s"
    )
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="in place of bench/results")
    options = parser.parse_args()
    try:
        pieces = named(options.piece)
    except ValueError as error:
        parser.error(str(error))
    rivals = tuple(filter(None, options.rivals.split(",")))
    if unknown := set(rivals) - set(RIVALS):
        parser.error(f"there is no form {', '.join(sorted(unknown))} of PyTorch")
    _keep_programs()
    folder = results.folder(options.results, options.reduced)
    if options.dry_run:
        _list(pieces, folder, options.reduced)
        return 0
    return _run(_pending(pieces, folder, options.again), folder, options, tuple(f for f in RIVALS if f in rivals))


def _run(pieces: list[Piece], folder: Path, options: argparse.Namespace, rivals: tuple[str, ...]) -> int:
    """Runs what there is time for; 1 where a piece failed."""
    began, failed = time.monotonic(), 0
    end = began + 60 * options.minutes
    for place, piece in enumerate(pieces):
        estimate, now = _estimate(piece, options.reduced), time.monotonic()
        if place and now + estimate > end:
            left = ", ".join(later.name for later in pieces[place:])
            print(f"no time is left for {left}: call again to go on", flush=True)
            break
        asked = Asked(options.reduced, rivals, min(end, now + max(LEAST, LONGEST * estimate)))
        chosen = None if options.again else results.read(folder, piece.name).get("chosen")
        outcome = Outcome(piece.name, chosen=chosen)
        failed += _ended_badly(piece, asked, outcome, folder)
    return 1 if failed else 0


def _ended_badly(piece: Piece, asked: Asked, outcome: Outcome, folder: Path) -> bool:
    """Runs a piece, and writes what it outcome even where it fails."""
    began = time.monotonic()
    print(f"\n{piece.name}: begins", flush=True)
    # A process that is killed leaves a file that says that the piece has not ended.
    results.write(folder, outcome, began, "the process ended")
    error = None
    try:
        piece.run(asked, outcome)
    except Exception as reason:
        traceback.print_exc()
        error = f"{type(reason).__name__}: {str(reason)[:300]}"
    path = results.write(folder, outcome, began, error)
    _release()
    print_bench(outcome.bench)
    took = time.monotonic() - began
    print(f"{piece.name}: {'failed' if error else 'ended'} after {took:.0f} s: {path}", flush=True)
    return error is not None


def _release() -> None:
    """Gives back what PyTorch holds of a piece: memory, and programs, as of a function it compiles only a few."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()


def _pending(pieces: list[Piece], folder: Path, again: bool) -> list[Piece]:
    """Those without a result; those that began before and did not end come last, so that none is in the others' way."""
    written = {piece.name: results.read(folder, piece.name) for piece in pieces}
    ended = [piece for piece in pieces if results.is_current(written[piece.name])]
    if ended and not again:
        print(f"{len(ended)} pieces have a result: {', '.join(piece.name for piece in ended)}", flush=True)
    pending = [piece for piece in pieces if again or piece not in ended]
    return sorted(pending, key=lambda piece: written[piece.name].get("finished") is False)


def _list(pieces: list[Piece], folder: Path, reduced: bool) -> None:
    """The pieces, their seconds, and whether there is a result."""
    print(f"{folder.name}: pieces, seconds, results")
    for piece in pieces:
        result = results.read(folder, piece.name)
        state = "has a result" if result.get("finished") else "did not end" if result else ""
        if change := result.get("older_than"):
            state = f"older than a change: {change}"
        print(f"  {piece.name:30}{_estimate(piece, reduced):>6}  {state}".rstrip())
    print(f"  {'all':30}{sum(_estimate(piece, reduced) for piece in pieces):>6}")


def _estimate(piece: Piece, reduced: bool) -> int:
    """Seconds, about, of a piece on the device at hand."""
    if reduced:
        return piece.seconds.reduced
    return piece.seconds.cpu if jax.default_backend() == "cpu" else piece.seconds.gpu


def _keep_programs() -> None:
    """Compiled programs are kept between calls, as nothing here times compilation, but for `command` and `bank`."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(Path(tempfile.gettempdir()) / "jaxaudit-bench-programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


if __name__ == "__main__":
    sys.exit(main())
