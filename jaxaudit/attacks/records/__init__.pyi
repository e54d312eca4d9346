"""The names of `attacks.records`: see `jaxaudit/__init__.pyi`."""

from .attack import Least as Least
from .attack import RecordAttack as RecordAttack
from .attack import ShadowScores as ShadowScores
from .built_in import RECORD_ATTACKS as RECORD_ATTACKS
from .lira import BaVarIAt as BaVarIAt
from .lira import LiRA as LiRA
from .rmia import BASE as BASE
from .rmia import RMIA as RMIA
from .rmia import AttackP as AttackP
from .stacked import Stacked as Stacked

BUILT_IN: dict[str, tuple[str, ...]]
