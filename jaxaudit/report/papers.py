"""The papers that numbers rest on, as BibTeX.

Each test, attack, method and metric names its papers in `source` or `SOURCE`, in the usual form of citations, such as
`Carlini et al. 2022`; `papers.bib` has an entry for each.

What a number rests on stands at what computes it. A test, an attack, a method, a metric names its papers (`source`,
`SOURCE`) as the field cites them, such as `Carlini et al. 2022`; `report/papers.bib` has an entry for each of these
names, and a test finds each name an entry and each entry a name. The site's references are written from it. A record is
given its papers when it is made, so your own test is cited, too. `jaxaudit cite` prints entries of the package alone,
never text of a result. A test also says how often its verdicts are wrong (`errors`), for a model card.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from jaxaudit.report.record import Paper

_FIELD = re.compile(r"^  (\w+) = \{(.*)\},\n", re.MULTILINE)
_OWN = re.compile(r"^  (?:cited|used|part) = .*\n", re.MULTILINE)
"""Fields of `papers.bib` that are this package's own and not BibTeX's."""


class Entry(NamedTuple):
    """An entry of the bibliography.

    Attributes:
        key: its key in BibTeX.
        source: how the package cites it, such as `Carlini et al. 2022`.
        title, venue: of the paper.
        bibtex: the entry in BibTeX.
    """

    key: str
    source: str
    title: str
    venue: str
    bibtex: str


@cache
def bibliography() -> tuple[Entry, ...]:
    """Every entry of `papers.bib`, in its order."""
    text = (files("jaxaudit.report") / "papers.bib").read_text(encoding="utf-8")
    entries = []
    for entry in re.findall(r"^@.*?^\}$", text, re.MULTILINE | re.DOTALL):
        fields = {name: re.sub(r"[{}]", "", value) for name, value in _FIELD.findall(entry)}
        venue = fields.get("booktitle") or fields.get("journal") or f"arXiv:{fields['eprint']}"
        key = entry[entry.index("{") + 1 : entry.index(",")]
        entries.append(Entry(key, fields["cited"], fields["title"], venue, _OWN.sub("", entry)))
    return tuple(entries)


def cited(sources: Iterable[str]) -> list[Paper]:
    """Every paper that these citations name, each once, in the order of first mention.

    A citation without an entry, such as one of your own attack, is kept without a key. This program itself is
    not a paper.

    >>> [paper.key for paper in cited(["Efron 1979; Holm 1979", "Carlini et al. 2022, code", "Efron 1979"])]
    ['efron1979bootstrap', 'holm1979multiple', 'carlini2022membership']
    """
    papers_by_source: dict[str, Paper] = {}
    for words in (source_words.strip() for source in sources for source_words in source.split(";")):
        entries = [entry for entry in bibliography() if entry.source in words]
        for entry in entries:
            papers_by_source.setdefault(entry.source, Paper(entry.source, entry.key, entry.bibtex))
        if words and not entries and words != "jaxaudit":
            papers_by_source.setdefault(words, Paper(words))
    return list(papers_by_source.values())


def in_full(source: str) -> str | None:
    """The paper with this citation, on one line; None if there is no entry.

    >>> in_full("Efron 1979")
    'Efron 1979: Bootstrap Methods: Another Look at the Jackknife. Annals of Statistics.'
    """
    return next(
        (f"{source}: {entry.title}. {entry.venue}." for entry in bibliography() if entry.source == source), None
    )


def as_bibtex(papers: Iterable[Paper], version: str) -> str:
    """A bibliography of these papers, and of this program.

    Entries come from this package, never from a result. Papers without an entry are left out, because BibTeX has no
    comments and would read an entry or a preamble at any @ sign.
    """
    entries = [entry.bibtex for entry in map(entry_of, papers) if entry is not None]
    return "\n\n".join([*dict.fromkeys(entries), _PROGRAM % re.sub(r"[^0-9A-Za-z.+-]", "", version)]) + "\n"


def entry_of(paper: Paper) -> Entry | None:
    """The entry of this package for a paper of a result; None if there is none."""
    return next((entry for entry in bibliography() if entry.key == paper.key), None)


_PROGRAM = """@software{jaxaudit,
  author = {{The jaxaudit authors}},
  title = {jaxaudit: What does a trained model still remember?},
  version = {%s},
  year = {2026},
  note = {Not released yet},
}"""
