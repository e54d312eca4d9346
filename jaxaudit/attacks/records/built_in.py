"""The built-in attacks on records, as their files have them: apart from their names, which need nothing heavy."""

from importlib import import_module

from jaxaudit.attacks.records import BUILT_IN
from jaxaudit.attacks.records.attack import RecordAttack

RECORD_ATTACKS: tuple[RecordAttack, ...] = tuple(
    attack for file in BUILT_IN for attack in import_module(f"jaxaudit.attacks.records.{file}").ATTACKS
)
"""The built-in attacks of `attack` by a bank and `jaxaudit attack --shadows`; the first decides."""
