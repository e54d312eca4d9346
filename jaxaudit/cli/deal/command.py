"""`jaxaudit deal`: its options. Imports nothing heavy, so that `--help` is instant."""

from pathlib import Path
from typing import Annotated

import typer

from jaxaudit.cli.options import at_home
from jaxaudit.errors import InputError


def deal(
    data: Annotated[str, typer.Argument(metavar="DATA", help="The provider's records: NAME[@SPLIT] or a path.")],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Write query.npz, holdout.npz and deal.json into this new directory.")
    ],
    holdout_share: Annotated[
        float, typer.Option(metavar="X", help="Share of the records, or groups, to hold out.")
    ] = 0.5,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|KEY",
            help="Group of each record, such as its patient, to deal groups whole: .npy, .csv, or the name of an array "
            "in the .npz.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**32 - 1, help="Random seed. The same seed gives the same files.")
    ] = 7,
) -> None:
    """Splits records at random into a query set to share and a holdout to keep, before anything is shared.

    The holdout later makes an exact test of deletion possible: `jaxaudit ks --holdout`. Copies of a record are dealt
    together, and so are the records of a group. deal.json has hashes of both sides and no record.

    Examples:

    `jaxaudit deal records.npz --out deal`

    `jaxaudit deal records.npz --holdout-share 0.3 --groups patient --seed 11 --out deal`
    """
    if not 0 < holdout_share < 1:
        raise InputError(f"--holdout-share must be above 0 and below 1, got {holdout_share:g}.")
    from jaxaudit.cli.deal.run import run

    run(data, at_home(out), holdout_share, groups, seed)
