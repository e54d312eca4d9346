"""The names of `attacks`: see `jaxaudit/__init__.pyi`."""

from . import records as records
from .attack import Attack as Attack
from .attack import AttackInputs as AttackInputs
from .attack import Distance as Distance
from .attack import Frequency as Frequency
from .attack import PairedShadows as PairedShadows
from .attack import PooledShadows as PooledShadows
from .attack import Untargeted as Untargeted
from .attack import attack_examples as attack_examples
from .learned import LearnedAttack as LearnedAttack
from .learned import fit_learned as fit_learned
from .learned import learned_probabilities as learned_probabilities
