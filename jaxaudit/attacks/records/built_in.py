"""Imports all built-in attacks on records. (Their names alone are in `__init__`, which imports nothing heavy.)"""

from importlib import import_module

from jaxaudit.attacks.records import BUILT_IN
from jaxaudit.attacks.records.attack import RecordAttack

RECORD_ATTACKS: tuple[RecordAttack, ...] = tuple(
    attack for file in BUILT_IN for attack in import_module(f"jaxaudit.attacks.records.{file}").ATTACKS
)
"""The built-in attacks of `attack` with a bank and of `jaxaudit attack --shadows`; the first one decides."""
