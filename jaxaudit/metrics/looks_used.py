"""Do known non-members look used? Checks of a holdout and of a reference.

If the target was trained on the known non-members, too, use of the query set makes no difference and stays hidden. Each
check compares the target's outputs on them with shadow models' outputs on records that *they* did not use.
"""

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from jaxaudit.metrics.scores import MembershipScores
from jaxaudit.metrics.usage import STATED_FRACTION

ROUNDING = 1e-3
"""An accuracy must exceed the bound by more than this to count."""


def bound_of_one_more(values: Float[np.ndarray, " models"], alpha: float) -> float:
    """The upper prediction limit (Student's t): one more model of the same kind exceeds it with probability `alpha`.

    `values` has one number per model, of at least two models; `alpha` is at most 0.5.

    >>> round(bound_of_one_more(np.array([-1.0, 0.0, 1.0]), 0.05), 2)
    3.37
    """
    error = float(np.std(values, ddof=1)) * np.sqrt(1 + 1 / len(values))
    return float(values.mean() - special.stdtrit(len(values) - 1, alpha) * error)


def holdout_used(
    found: MembershipScores,
    membership: Bool[np.ndarray, "models n"],
    size: int,
    stated: float,
    alpha: float,
) -> tuple[str, ...]:
    """Returns a doubt if the target's scores on the holdout look like those of a model trained on it.

    Each score is compared with the scores of shadow models that did not use the record, so that an easy or hard holdout
    causes no doubt. The doubt is raised if all of these hold:

    - use is visible: models that used the records exceed the bound (`bound_of_one_more`) on average;
    - the target's mean exceeds the bound. A target like the shadow models, without use, does so with probability at
      most `alpha`;
    - the target's mean is at least the fraction `stated` (at most `STATED_FRACTION`) of the way from models that did
      not use the records to models that did.

    Args:
        found, membership: scores of the target and of the shadow models, and the latter's membership masks.
        size: the number of query records, which come first.
        stated: the used fraction that `forgotten` must rule out.
        alpha: the largest probability of a false alarm.
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
    """The mean of each model's selected values, for models with at least one."""
    counts = which.sum(axis=1)
    return ((values * which).sum(axis=1) / np.maximum(counts, 1))[counts > 0]


def reference_used(
    share: float,
    shares: Float[np.ndarray, " models"],
    accuracy: float,
    accuracies: Float[np.ndarray, " models"],
    alpha: float,
) -> tuple[str, ...]:
    """Returns a doubt if the reference looks used by the target, by its outputs' used share or by its accuracy.

    For a target that is trained like the shadow models and did not use the reference, each of the two raises a false
    alarm with probability at most `alpha` / 2. A target whose outputs scatter more raises it more often: the bound is
    not widened, since use also makes outputs scatter.

    Args:
        share, accuracy: of the target on the reference; the share is that of `linear_share`.
        shares, accuracies: the same for each shadow model, on reference records that it was not trained on.
        alpha: the largest probability of a false alarm.
    """
    most_used = bound_of_one_more(shares, alpha / 2)
    # If all shadow models have the same accuracy, the bound equals it, and one record more would exceed it.
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
