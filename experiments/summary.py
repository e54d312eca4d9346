"""What an experiment says of itself in `experiments/README.md`."""

from typing import NamedTuple


class Row(NamedTuple):
    """A table or figure of a paper, done again; made of a committed result by its experiment's `summary(result)`.

    Attributes:
        paper: `liu2020`, `becker2022`, `long2017`, or another of `papers.PAPERS`.
        item: `Table 1` or `Figure 2`, as in `papers.py`; any other words put the row below "Beyond the papers".
        quantity: what the numbers are of.
        theirs: the paper's number, or "none given".
        ours: ours, in the same words.
        sentence: where the two differ and why, in one honest sentence.
        arguments: what the command takes beside its name.
    """

    paper: str
    item: str
    quantity: str
    theirs: str
    ours: str
    sentence: str
    arguments: str = ""
