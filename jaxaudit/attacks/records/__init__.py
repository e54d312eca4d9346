"""Attacks on each record by a bank of shadow models: log-odds in, a score a record out, larger for a member."""

from jaxaudit.attacks.records.attack import RecordAttack, ShadowScores
from jaxaudit.attacks.records.base import BASE
from jaxaudit.attacks.records.bavaria import BaVarIAt
from jaxaudit.attacks.records.lira import LiRA
from jaxaudit.attacks.records.lira_code import LiRACode
from jaxaudit.attacks.records.population import AttackP
from jaxaudit.attacks.records.reference import AttackR
from jaxaudit.attacks.records.rmia import RMIA
from jaxaudit.attacks.records.stacked import Stacked

RECORD_ATTACKS: tuple[RecordAttack, ...] = (
    Stacked(),
    BaVarIAt(),
    *(LiRA(online, fixed) for online in (True, False) for fixed in (False, True)),
    *(RMIA(online) for online in (True, False)),
    *(BASE(online) for online in (True, False)),
    AttackR(),
    AttackP(),
    *(LiRACode(online, fixed) for online in (True, False) for fixed in (False, True)),
)
"""The built-in attacks of `attack` and `jaxaudit attack --shadows`; the first decides."""

__all__ = [
    "BASE",
    "RECORD_ATTACKS",
    "RMIA",
    "AttackP",
    "AttackR",
    "BaVarIAt",
    "LiRA",
    "LiRACode",
    "RecordAttack",
    "ShadowScores",
    "Stacked",
]
