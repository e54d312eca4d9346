"""The terms on a page with their meaning, and the papers that numbers rest on, as BibTeX.

Each test, attack, method and metric names its papers where it computes (`source`, `SOURCE`), as the field cites them;
`papers.bib` has an entry for each name, and the site's references are written from it. A record is given its papers
when it is made, so your own test is cited, too.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from jaxaudit.json_types import StrictStruct

_BY_SOURCE = {
    "Liu & Tsaftaris 2020": {
        "query set": "The data in question: was the target trained on them, or has it forgotten them?",
        "calibration set": "Data of the same domain, with no record of the query set.",
        "target": "The model being judged. Only its outputs on the query records are needed.",
        "confidence": "The probability that a model gives to a record's true class.",
        "query model": "A shadow model trained on the query set. It shows what remembering looks like.",
        "calibration model": "A shadow model trained on the calibration set. It never saw the query set.",
        "rho": "The distance from a query model to the target, divided by that to a calibration model. Below 1, the "
        "target is nearer to the query models than calibration models are.",
        "the paper's rule": "Forgotten if rho is 1 or more, whatever its spread. Shown beside the verdict.",
    },
    "this program": {
        "shadow bank": "Shadow models that were trained before, with their training sets and outputs.",
        "replicate": "One pair of query and calibration model with its own seed.",
        "noise floor": "The distances between query models that differ only in their random seed.",
        "positive control": "A model known to have been trained on both sets. If rho does not detect the query set in "
        "it, rho does not work on these data, and forgotten is not concluded.",
        "used fraction": "The estimated share of the query set that was used to train the target. Measured with known "
        "members, it is how much of the memory that the target has of them it has of the query set: the share that "
        "was used, if the query records were used like the known members, at the same time.",
        "fraction left": "How much memory of the query set is left, as a share of what the model before the deletion "
        "had of it or, without that model's outputs, of what the target has of the known members. It is asked of a "
        "target that was trained on after the use, such as an unlearned one, and does not say how much was used.",
        "p (not used)": "How often a model that never used the query set looks at least as suspicious as the target.",
        "p (all used)": "How often a model that used the whole query set looks at least as innocent as the target.",
        "p (none left)": "How often a model without any memory of the query set looks at least as suspicious as the "
        "target.",
        "p (all left)": "How often a model whose memory of the query set is whole looks at least as innocent as the "
        "target.",
        "upper limit": "The fraction is at most this, with 95% confidence (one-sided). Forgotten is concluded if it "
        "is small.",
        "detectable fraction": "The smallest used fraction of the query set that would be detected with 95% "
        "probability.",
        "minimum detectable fraction": "The smallest used fraction of the query set that would be detected with 95% "
        "probability.",
        "holdout": "Records of the query set's provider that nobody trained on: known non-members. They show what the "
        "target says of records that it did not use.",
        "known members": "Records that the target is known to have used, sampled like the query set, that stay in "
        "training. They show how much the target remembers of records that it did use.",
        "withdraw": "To request that records which were shared and used are deleted. Those withdrawn are the query "
        "set; those that stay in training are the known members.",
        "reference": "Records that the target is known not to have used, like its other data.",
        "log-odds": "log(p / (1 - p)) of a probability p. On this axis, values close to 0 or 1 are spread out.",
        "nat": "The unit of the natural logarithm: 1 nat is a factor of 2.718.",
        "seed floor": "PDTP if no record is left out and only the random seed differs.",
        "distinguishable": "A method is distinguishable if a score ranks higher or lower among those of retrained "
        "models than chance explains; by outputs of given models, if the whole interval of U-LiRA's accuracy lies "
        "above 0.5.",
    },
    "Smirnov 1939": {
        "empirical CDF": "For each value, the share of a sample at or below it.",
        "Kolmogorov-Smirnov distance": "The largest gap between two empirical CDFs: 0 for equal samples, 1 for "
        "samples that do not overlap.",
    },
    "Shokri et al. 2017": {
        "shadow model": "A model trained here, of known membership.",
        "membership attack": "Infers from a classifier's output on a record whether it was trained on the record.",
    },
    "Long, Bindschaedler & Gunter 2017": {
        "PDTP": "Pointwise differential training privacy of a record: by how many nats the classifier's output on the "
        "record changes if the record is left out of the training set. A lower bound of the change on any input.",
        "DTP-1": "The rule of thumb that a classifier exposes a record whose PDTP is above 1 nat.",
        "bins": "Before outputs are compared, each probability is replaced by the centre of its bin. A small "
        "probability that crosses an edge then counts as log 3.",
        "accuracy of an attack": "The share of its answers that are right; guessing has 0.5.",
    },
    "Carlini et al. 2022": {
        "ROC and AUC": "The true positive rate at each false positive rate. The area under it (AUC) is 0.5 for "
        "guessing and 1 for a perfect attack. On logarithmic axes, its left end shows the members found with high "
        "confidence.",
    },
    "Becker & Liebig 2022": {
        "Fisher information": "The mean over records of the squared norm of the gradient of their loss. Small where "
        "weights fit the records, as those that they were trained on; large for weights that never saw them.",
        "efficacy": "One divided by the Fisher information of the records. Training on records makes it large, and "
        "forgetting should make it small. It is infinite for weights that fit the records perfectly.",
        "bound of the efficacy": "One divided by the squared norm of the mean gradient: never below the efficacy, and "
        "cheap.",
        "retraining": "Training again without the records. The reference for forgetting.",
    },
    "Graves, Nagisetty & Ganesh 2021": {
        "amnesiac unlearning": "Undoes every update of a batch that contained a record to forget.",
    },
    "Golatkar, Achille & Soatto 2020": {
        "Fisher forgetting": "Adds noise to the weights, more to weights that matter less for the remaining records.",
    },
    "Triantafillou et al. 2024": {
        "forgetting quality": "How hard it is to distinguish unlearned models from retrained ones by their outputs on "
        "each forgotten record. Larger is better; even models that were retrained once more reach only about 0.2.",
    },
    "Hayes et al. 2024": {
        "U-LiRA": "A membership attack that knows how models unlearn: each forgotten record's log-odds under a model "
        "is compared with those of unlearned and of retrained models. Its accuracy is 0.5 if they are not "
        "distinguishable.",
    },
    "Efron 1979": {
        "interval": "A range that contains the true value with the stated confidence, given the variation over seeds "
        "and records.",
    },
    "Pearson 1895": {
        "correlation": "From -1 to 1: how closely two numbers follow a straight line; 0 means no linear relation.",
    },
}
GLOSSARY = {term: (meaning, source) for source, terms in _BY_SOURCE.items() for term, meaning in terms.items()}
"""Each term with its meaning and its source."""


class Term(NamedTuple):
    term: str
    meaning: str
    source: str


def terms(*names: str) -> tuple[Term, ...]:
    return tuple(Term(name, *GLOSSARY[name]) for name in names)


class Paper(StrictStruct, frozen=True):
    """A paper that numbers rest on, by its citation; `key` is that of its entry in the bibliography, if it has one."""

    source: str
    key: str | None = None


def papers(sources: Iterable[str]) -> tuple[str, ...]:
    """Title and venue of each paper that these citations name, one line for each; unknown citations are left out.

    >>> papers(["Efron 1979", "me"])
    ('Efron 1979: Bootstrap Methods: Another Look at the Jackknife. Annals of Statistics.',)
    """
    lines = {entry.source: f"{entry.source}: {entry.title}. {entry.venue}." for entry in bibliography()}
    return tuple(lines[source] for source in sorted(lines.keys() & set(sources)))


_FIELD = re.compile(r"^  (\w+) = \{(.*)\},\n", re.MULTILINE)
_OWN = re.compile(r"^  (?:cited|used|part) = .*\n", re.MULTILINE)
"""Fields of `papers.bib` that are this package's own and not BibTeX's."""


class Entry(NamedTuple):
    """An entry of the bibliography; `source` is how the package cites it, such as `Carlini et al. 2022`."""

    key: str
    source: str
    title: str
    venue: str
    bibtex: str


@cache
def bibliography() -> tuple[Entry, ...]:
    text = (files("jaxaudit.report") / "papers.bib").read_text(encoding="utf-8")
    entries = []
    for entry in re.findall(r"^@.*?^\}$", text, re.MULTILINE | re.DOTALL):
        fields = {name: re.sub(r"[{}]", "", value) for name, value in _FIELD.findall(entry)}
        venue = fields.get("booktitle") or fields.get("journal") or f"arXiv:{fields['eprint']}"
        key = entry[entry.index("{") + 1 : entry.index(",")]
        entries.append(Entry(key, fields["cited"], fields["title"], venue, _OWN.sub("", entry)))
    return tuple(entries)


def cited(sources: Iterable[str]) -> list[Paper]:
    """Every paper that these citations name, each once, in the order of first mention; without a key if it has no
    entry, such as that of your own attack.

    >>> [paper.key for paper in cited(["Efron 1979; Holm 1979", "Carlini et al. 2022, code", "Efron 1979"])]
    ['efron1979bootstrap', 'holm1979multiple', 'carlini2022membership']
    """
    papers_by_source: dict[str, Paper] = {}
    for words in (source_words.strip() for source in sources for source_words in source.split(";")):
        entries = [entry for entry in bibliography() if entry.source in words]
        for entry in entries:
            papers_by_source.setdefault(entry.source, Paper(entry.source, entry.key))
        if words and not entries and words != "jaxaudit":
            papers_by_source.setdefault(words, Paper(words))
    return list(papers_by_source.values())


def as_bibtex(papers: Iterable[Paper], version: str) -> str:
    """A bibliography of these papers, and of this program, from entries of this package, never from a result. Papers
    without an entry are left out: BibTeX has no comments, and would read an entry at any @ sign.
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
