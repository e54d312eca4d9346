"""What a report needs to know about the runs of one command."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from jaxaudit.json_types import demand as demand
from jaxaudit.report.page import Part, Picture
from jaxaudit.report.run import Run

Arrays = Mapping[str, np.ndarray]


class Stored(NamedTuple):
    """The arrays that a run directory holds beside the result.

    Attributes:
        file: an .npz, or a .parquet with one row per record.
        names: names of its arrays or columns.
        rows: number of rows of the columns; 0 for an .npz.
    """

    file: str
    names: tuple[str, ...]
    rows: int = 0


class Kind(NamedTuple):
    """The runs of one command.

    Attributes:
        name: the command.
        record: the type of its results, with encoder, strict decoder and schema.
        view: makes the content of one run; the second argument is the number of records that a terminal lists.
        check: raises ValueError, with the reason, if a result and its arrays do not agree.
        stored: the arrays beside a result, if any.
        compared: makes charts of several runs of this kind.
    """

    name: str
    record: type[msgspec.Struct]
    view: Callable[[Run[Any], int], Part]
    check: Callable[[Any, Arrays], None]
    stored: Callable[[Any], Stored | None] = lambda _: None
    compared: Callable[[Sequence[Run[Any]]], tuple[Picture, ...]] = lambda _: ()
