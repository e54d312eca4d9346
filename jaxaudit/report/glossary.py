"""What the words on a page mean, and whose they are."""

from collections.abc import Iterable
from typing import NamedTuple

LIU, LONG, SHOKRI = "Liu & Tsaftaris 2020", "Long, Bindschaedler & Gunter 2017", "Shokri et al. 2017"
CARLINI, HUANG, BECKER = "Carlini et al. 2022", "Huang, Li & Li 2021", "Becker & Liebig 2022"
GOLATKAR, GRAVES = "Golatkar, Achille & Soatto 2020", "Graves, Nagisetty & Ganesh 2021"
KOLMOGOROV, EFRON, PEARSON, PROGRAM = "Smirnov 1939", "Efron 1979", "Pearson 1895", "this program"

PAPERS = {
    LIU: "Have you forgotten? A method to assess if machine learning models have forgotten data. MICCAI",
    LONG: "Towards measuring membership privacy",
    SHOKRI: "Membership inference attacks against machine learning models. IEEE S&P",
    CARLINI: "Membership inference attacks from first principles. IEEE S&P",
    HUANG: "EMA: auditing data removal from trained models. MICCAI",
    BECKER: "Evaluating machine unlearning via epistemic uncertainty",
    GOLATKAR: "Eternal sunshine of the spotless net: selective forgetting in deep networks. CVPR",
    GRAVES: "Amnesiac machine learning. AAAI",
    KOLMOGOROV: "On the estimation of the discrepancy between empirical curves for two independent samples",
    EFRON: "Bootstrap methods: another look at the jackknife. Annals of Statistics",
    PEARSON: "Note on regression and inheritance in the case of two parents. Proceedings of the Royal Society",
}

GLOSSARY: dict[str, tuple[str, str]] = {
    "query set": ("The data in question: was the target trained on them, or has it forgotten them?", LIU),
    "calibration set": ("Data of the same kind, none of which are in the query set.", LIU),
    "target": ("The model that is judged. Only what it says of the query records is needed.", LIU),
    "confidence": ("The probability a model gives to a record's right class.", LIU),
    "query model": ("A model trained here, on the query set: what remembering looks like.", LIU),
    "calibration model": ("A model trained here, on the calibration set: what never having seen looks like.", LIU),
    "empirical CDF": ("At each value, the share of a sample that is at most that value.", KOLMOGOROV),
    "Kolmogorov-Smirnov distance": (
        "The widest gap between two empirical CDFs: 0 where two samples are alike, 1 where they do not overlap.",
        KOLMOGOROV,
    ),
    "rho": (
        "The distance from a query model to the target, divided by that to a calibration model. Below 1 the target is "
        "nearer to models that saw the query set than models that never did.",
        LIU,
    ),
    "replicate": ("One pair of a query and a calibration model, with a seed of its own.", PROGRAM),
    "noise floor": ("How far apart query models are that differ by their random seed alone.", PROGRAM),
    "positive control": (
        "A model known to have been trained on both sets. Where it does not come out as not forgotten, the method does "
        "not work on these data, and forgotten is not said.",
        PROGRAM,
    ),
    "the paper's rule": ("Forgotten where rho is 1 or more, whatever its spread. Shown beside the verdict.", LIU),
    "used fraction": ("The share of the query set that a target's training used, as estimated.", PROGRAM),
    "detectable fraction": (
        "The smallest share of the query set whose use this run would have noticed 95 times of 100.",
        PROGRAM,
    ),
    "minimum detectable fraction": (
        "The smallest used fraction of the query set that would be detected with 95% probability.",
        PROGRAM,
    ),
    "holdout": ("Records of the query set's provider that nobody trained on.", PROGRAM),
    "shadow model": ("A model trained here, of known membership.", SHOKRI),
    "EMA": (
        "Ensembled membership auditing: flags each record that looks like a training record, and tests whether all do.",
        HUANG,
    ),
    "log-odds": ("log(p / (1 - p)) of a probability p: an axis on which values close to 0 or 1 lie apart.", PROGRAM),
    "nat": ("The unit of a natural logarithm: 1 nat is a factor of 2.718.", PROGRAM),
    "PDTP": (
        "Pointwise differential training privacy of a record: how far, in nats, leaving it out of the training set "
        "moves what the classifier says of that record. It is a lower bound of what can move anywhere.",
        LONG,
    ),
    "DTP-1": ("The rule that a classifier with a value above 1 for any record should not be published.", LONG),
    "seed floor": ("The same number where no record was left out and only the random seed differs.", PROGRAM),
    "bins": (
        "Before outputs are compared, each probability is replaced with the centre of its bin. A small probability "
        "that crosses an edge then counts as log 3.",
        LONG,
    ),
    "membership attack": ("A guess, from what a classifier says of a record, whether it was trained on it.", SHOKRI),
    "accuracy of an attack": ("The share of its guesses that are right; 0.5 is what a coin gets.", LONG),
    "ROC and AUC": (
        "The share of members found at each share of others accused; the area below it is 0.5 for a coin, 1 for "
        "certainty. On logarithmic axes its left end shows whom an attacker can be sure of.",
        CARLINI,
    ),
    "Fisher information": (
        "How much a record's loss still pulls at the weights: the mean over records of the squared norm of its "
        "gradient.",
        BECKER,
    ),
    "efficacy": (
        "One divided by the Fisher information of the records. Smaller: less is exposed. It is infinite for weights "
        "that fit the records perfectly.",
        BECKER,
    ),
    "bound of the efficacy": (
        "One divided by the squared norm of the mean gradient: never below the efficacy, and cheap.",
        BECKER,
    ),
    "retraining": ("Training anew without the records: what forgetting is compared with.", BECKER),
    "amnesiac unlearning": ("Taking back every update of a batch that held a record to forget.", GRAVES),
    "Fisher forgetting": ("Noise on the weights, the more where the remaining records need them less.", GOLATKAR),
    "distinguishable": (
        "Said of a method where a score ranks so high or so low among those of retrained models that chance would be a "
        "poor explanation.",
        PROGRAM,
    ),
    "interval": (
        "Where the number would lie in so many of a hundred repetitions, as far as seeds and records decide.",
        EFRON,
    ),
    "correlation": ("From -1 to 1: how far two numbers go together along a line; 0 is not at all.", PEARSON),
}


class Term(NamedTuple):
    """A word, what it means, and whose it is."""

    term: str
    meaning: str
    source: str


def terms(*names: str) -> tuple[Term, ...]:
    """These words of the glossary."""
    return tuple(Term(name, *GLOSSARY[name]) for name in names)


def sorted_terms(found: Iterable[Term]) -> tuple[Term, ...]:
    """Each once, in the order of the alphabet."""
    return tuple(sorted(dict.fromkeys(found), key=lambda each: each.term.lower()))


def papers(sources: Iterable[str]) -> tuple[str, ...]:
    """The papers among these sources, in full."""
    return tuple(f"{source}: {PAPERS[source]}." for source in sorted(set(sources) & set(PAPERS)))
