"""A lower bound on epsilon as JSON."""

from jaxaudit.audits.record_attack.epsilon import RecipeBound
from jaxaudit.metrics.epsilon import METHOD
from jaxaudit.report.record import Part


class Epsilon(Part):
    """A lower bound on the epsilon of the recipe, nats, for one record added or removed.

    It is above the true epsilon with a probability of at most 1 - `level`. `guesses` pairs of an audited model and a
    record were called members, and `right` of them are.
    """

    bound: float
    level: float
    delta: float
    method: str
    attack: str
    references: int
    audited: int
    members: int
    non_members: int
    guesses: int
    right: int
    sentence: str


def epsilon_of(of: RecipeBound) -> Epsilon:
    """What a result says of the epsilon of its recipe."""
    found = of.found
    return Epsilon(
        bound=found.bound,
        level=found.level,
        delta=found.delta,
        method=METHOD,
        attack=of.attack,
        references=found.references,
        audited=found.audited,
        members=found.members,
        non_members=found.non_members,
        guesses=found.guesses,
        right=found.right,
        sentence=of.sentence,
    )
