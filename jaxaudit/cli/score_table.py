"""Reads a table of scores, and says on standard error what its columns were taken for."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxaudit.cli.progress import say
from jaxaudit.data.formats.row_numbers import INDEX_NAMES
from jaxaudit.data.scores.reading import load_scores
from jaxaudit.data.scores.table import ScoreTable

SHOWN = 10


def read_scores(
    path: Path, rename: Mapping[str, str] = {}, lower: Sequence[str] = (), higher: Sequence[str] = ()
) -> ScoreTable:
    """The table of scores in a file, as `load_scores` reads it; says on stderr what was ignored or taken for granted.

    The arguments are those of `load_scores`.
    """
    table = load_scores(path, rename=rename, lower=lower, higher=higher)
    for note in table.notes:
        say(f"{table.name}: {note}")
    # An index of rows without a name, as pandas writes it, is nobody's score.
    ignored = [column for column in table.ignored if column.strip().casefold() not in INDEX_NAMES]
    if ignored:
        counted = "1 column is" if len(ignored) == 1 else f"{len(ignored)} columns are"
        say(f"{table.name}: {counted} not used: {', '.join(map(repr, ignored[:SHOWN]))}")
    ways = {
        way: [name for name in table.guessed if table.directions[name] == sign]
        for way, sign in (("lower", -1), ("higher", 1))
    }
    taken = [f"{way}: {', '.join(names[:SHOWN])}" for way, names in ways.items() if names]
    if taken:
        say(
            f"{table.name}: by their names, scores are taken for records that were used as {'; as '.join(taken)} "
            "(--lower and --higher of jaxaudit ks say otherwise)"
        )
    unknown = [name for name, direction in table.directions.items() if not direction]
    if unknown:
        say(
            f"{table.name}: it is not known whether {', '.join(unknown[:SHOWN])} is lower or higher for records that "
            "were used: no verdict rests on it; --lower or --higher of jaxaudit ks says it"
        )
    return table
