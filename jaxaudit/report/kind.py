"""The facts that a report needs of the runs of one command."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from jaxaudit.json_types import demand as demand
from jaxaudit.report.page import Part, Picture
from jaxaudit.report.run import Run

Arrays = Mapping[str, np.ndarray]


class Stored(NamedTuple):
    """Which arrays a run directory holds beside the result.

    Attributes:
        file: an .npz, or a .parquet with a row a record.
        names: of its arrays or columns.
        rows: of the columns; 0 for an .npz.
    """

    file: str
    names: tuple[str, ...]
    rows: int = 0


class Kind(NamedTuple):
    """The runs of one command.

    Attributes:
        name: the command.
        record: the type of their results: its encoder, strict decoder and schema.
        view: the content of one; the second argument is the number of records that a terminal lists.
        check: raises ValueError, with what is wrong, where result and arrays do not fit one another.
        stored: which arrays lie beside a result, if any.
        compared: charts of several such runs.
    """

    name: str
    record: type[msgspec.Struct]
    view: Callable[[Run[Any], int], Part]
    check: Callable[[Any, Arrays], None]
    stored: Callable[[Any], Stored | None] = lambda _: None
    compared: Callable[[Sequence[Run[Any]]], tuple[Picture, ...]] = lambda _: ()
