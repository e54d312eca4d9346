"""A path to labelled records, whatever kind of file or folder it is."""

from pathlib import Path

from jaxaudit.data.examples import Examples


def load_path(
    path: str | Path,
    labels_path: str | Path | None = None,
    *,
    split: str | None = None,
    size: tuple[int, int] | None = None,
    label_column: str | None = None,
) -> Examples:
    """The labelled records in `path`: .npz, .npy pair, .csv, .mat, IDX folder or a folder of class folders."""
    raise NotImplementedError
