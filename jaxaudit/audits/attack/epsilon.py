"""A lower bound on the epsilon of a bank's training recipe: half of the models serve to attack the other half."""

import msgspec

from jaxaudit.attacks.records import RecordAttack, ShadowScores
from jaxaudit.audits.attack.sections import Epsilon
from jaxaudit.audits.attack.units import AttackUnits
from jaxaudit.metrics.epsilon import METHOD, EpsilonBound, epsilon_bound, refuse_unless_coins


def bound_of_recipe(
    shadowed: ShadowScores, attack: RecordAttack, delta: float, level: float, units: AttackUnits
) -> Epsilon:
    """A lower bound on epsilon of differential privacy of the shadow models' recipe, from one attack on them.

    Args:
        shadowed: the shadow models' outputs and membership masks, the input of the attack.
        attack: the attack.
        delta: the delta of differential privacy.
        level: the one-sided confidence level of the bound.
        units: what is attacked, and so what is added or removed.

    Raises:
        InputError: the masks are not independent fair coins, or `epsilon_bound` raises.
    """
    refuse_unless_coins(units.whole(shadowed.membership, "the training sets"), units.noun)
    bound = bound_by_halves(shadowed, attack, units, delta=delta, level=level)
    return Epsilon(
        **msgspec.structs.asdict(bound),
        method=METHOD,
        attack=attack.name,
        sentence=_sentence(bound),
        of=units.noun,
    )


def bound_by_halves(
    shadowed: ShadowScores, attack: RecordAttack, units: AttackUnits, *, delta: float, level: float = 0.95
) -> EpsilonBound:
    """The bound where the first half of the models are references and the second half is audited.

    The halves are fixed before any output is read, and the attack is given no membership mask of an audited model
    (`metrics/epsilon.py` says why this is sound). Every unit must be in each mask by an independent fair coin.
    """
    half = len(shadowed.models) // 2
    references = ShadowScores(shadowed.models[:half], shadowed.membership[:half])
    truth = units.whole(shadowed.membership, "the training sets")
    return epsilon_bound(
        units.scores(attack.scores(references._replace(targets=shadowed.models[half:]))),
        truth[half:],
        units.scores(attack.scores(references)),
        truth[:half],
        delta=delta,
        level=level,
    )


def _sentence(bound: EpsilonBound) -> str:
    at = f"at delta {bound.delta:g}"
    if bound.bound <= 0:
        return (
            f"No claim of differential privacy is refuted {at}, and none is proven: the recipe may be private, or the "
            "attack too weak."
        )
    return (
        f"The epsilon of this recipe is at least {bound.bound:.3g} {at} ({bound.level:.0%}): a smaller one that is "
        "claimed for it is refuted. No claim is proven."
    )
