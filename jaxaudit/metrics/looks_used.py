"""Do records that a target is said not to have used look used? A holdout, or a reference.

If they were used, a difference between them and the query set hides use of the query set. Each question compares the
target with shadow models on records that *they* did not use, and states how often a target like them that used none
exceeds what it compares with.
"""

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from jaxaudit.metrics.scores import MembershipScores
from jaxaudit.metrics.usage import STATED_FRACTION

ROUNDING = 1e-3
"""An accuracy beyond the bound by no more than this is not beyond it."""


def bound_of_one_more(values: Float[np.ndarray, " models"], alpha: float) -> float:
    """What one more model exceeds with probability `alpha`, if it is one of these: Student's t for a new observation.

    Args:
        values: a number of each model, at least two.
        alpha: a probability, at most a half.

    >>> round(bound_of_one_more(np.array([-1.0, 0.0, 1.0]), 0.05), 2)
    3.37
    """
    models = len(values)
    error = float(np.std(values, ddof=1)) * np.sqrt(1 + 1 / models)
    return float(values.mean() - special.stdtrit(models - 1, alpha) * error)


def holdout_used(
    found: MembershipScores,
    membership: Bool[np.ndarray, "models n"],
    size: int,
    stated: float,
    alpha: float,
) -> tuple[str, ...]:
    """A doubt if the target's mean score on the holdout is that of a model trained on it.

    Scores are compared record by record with those of models that did not use the record, so that a hard holdout is no
    sign of use. The doubt is there if all of these hold:

    - use shows: models that used the records are on average above the bound below;
    - the target's mean is above the bound: of targets like the shadow models that used none, at most `alpha` are;
    - it is at least `stated` of the way to that of models that used these records, or a quarter if that is less.

    Args:
        found: scores of the target and of the shadow models.
        membership: which records each shadow model was trained on.
        size: the number of query records, which come first.
        stated: the used fraction that `forgotten` must rule out.
        alpha: a probability.
    """
    scores, unused = found.shadows, ~membership
    others = unused.sum(axis=0) - unused
    without = ((scores * unused).sum(axis=0) - scores * unused) / np.maximum(others, 1)
    above, known = scores - without, others > 0
    unseen = _means(above, unused & known)
    effect = float(_means(above, membership & known).mean() - unseen.mean())
    held = (np.arange(len(found.target)) >= size) & unused.any(axis=0)
    own = found.target - (scores * unused).sum(axis=0) / np.maximum(unused.sum(axis=0), 1)
    distance = float(own[held].mean() - unseen.mean())
    chance = bound_of_one_more(unseen, alpha) - float(unseen.mean())
    if effect <= chance or distance <= chance or distance < min(stated, STATED_FRACTION) * effect:
        return ()
    return (
        f"on the holdout, the target's outputs are {distance / effect:.0%} of the way from those of models that did "
        "not use the records to those of models that did: it may have been trained on the holdout or on similar "
        "records, or simply by another recipe, and use of the query set might then not be detected",
    )


def _means(values: Float[np.ndarray, "models n"], which: Bool[np.ndarray, "models n"]) -> Float[np.ndarray, " some"]:
    """The mean of these values of each model that has any."""
    counts = which.sum(axis=1)
    return ((values * which).sum(axis=1) / np.maximum(counts, 1))[counts > 0]


def reference_used(
    share: float,
    shares: Float[np.ndarray, " models"],
    accuracy: float,
    accuracies: Float[np.ndarray, " models"],
    alpha: float,
) -> tuple[str, ...]:
    """Doubts if the reference looks more used, or is better known, than by models that did not use it.

    Either is there of at most `alpha` / 2 of targets that are trained like the shadow models and used none of it. One
    that scatters more exceeds the bound more often: the bound is not stretched for it, since use makes outputs scatter.

    Args:
        share: the used share of the reference that the target shows (`linear_share`).
        shares: that of each shadow model, on records that it was not trained on.
        accuracy: the target's on the reference.
        accuracies: each shadow model's on what it was not trained on.
        alpha: a probability.
    """
    most_used = bound_of_one_more(shares, alpha / 2)
    # Where all shadow models have one accuracy, a record more or less is no sign of anything.
    most_known = bound_of_one_more(accuracies, alpha / 2) + ROUNDING
    seen = []
    if share > most_used:
        seen.append(f"{share:.0%} of the reference looks used (at most {max(most_used, 0):.0%} by chance)")
    if accuracy > most_known:
        seen.append(f"its accuracy on the reference is {accuracy:.1%} (at most {most_known:.1%} by chance)")
    if not seen:
        return ()
    return (
        f"{' and '.join(seen)}: the target may have been trained on the reference or on similar records, or simply by "
        "another recipe, and use of the query set might then not be detected",
    )
