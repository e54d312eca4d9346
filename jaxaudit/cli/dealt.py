"""What `--deal`, `--query` and `--calibration` name: the sets by role, and what their folder says of them.

Asked before anything heavy is imported: which models are needed depends on the sets that are there.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from jaxaudit.cli.options import refuse_options
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.data.challenge import Key
    from jaxaudit.data.examples import Sets


class NamedSets(NamedTuple):
    """The sets of a command line.

    Attributes:
        names: the name or path of each set.
        label: the column with the label: that of the folder, if it says so, else of `--label`.
        key: of a blind deal.
    """

    names: "Sets[str]"
    label: str | None = None
    key: "Key | None" = None


def named_sets(data: Any) -> NamedSets:
    """The sets that the options name; none may be missing but a query set that the command has an embedded one for.

    Raises:
        InputError: the folder of `--deal` is none, or `--query` or `--calibration` names a set that it has; or as
            `open_folder`.
    """
    # Imported here because NumPy takes a tenth of a second.
    from jaxaudit.data.examples import Sets
    from jaxaudit.data.paths import exists
    from jaxaudit.data.roles import open_folder

    held, deal = getattr(data, "holdout", None), getattr(data, "deal", None)
    # Of a folder that is not there the check of all paths says so.
    if deal is None or not exists(deal):
        return NamedSets(Sets(query=data.query, calibration=data.calibration, holdout=held), data.label)
    folder = open_folder(deal)
    files = {str(role): str(path) for role, path in folder.files.items()}
    twice = {"--query": data.query, "--holdout": held, "--calibration": "calibration" in files and data.calibration}
    refuse_options(twice, f"{deal} of --deal has that set")
    if None not in (data.label, folder.label) and data.label != folder.label:
        raise InputError(f"--label {data.label}: the deal in {deal} has the label in {folder.label!r}; leave it out.")
    if data.calibration is not None:
        files["calibration"] = data.calibration
    return NamedSets(Sets(**files), data.label or folder.label, folder.key)
