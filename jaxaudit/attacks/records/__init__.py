"""Attacks on each record by a bank of shadow models: log-odds in, a score a record out, larger for a member.

Imports nothing heavy: `__init__.pyi` lists the names, imported when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

BUILT_IN: dict[str, tuple[str, ...]] = {
    "stacked": ("stacked",),
    "bavaria": ("bavaria-t",),
    "lira": ("lira", "lira-fixed", "lira-offline", "lira-offline-fixed"),
    "rmia": ("rmia", "rmia-offline"),
    "base": ("base", "base-offline"),
    "reference": ("attack-r",),
    "population": ("attack-p",),
    "lira_code": ("lira-code", "lira-fixed-code", "lira-offline-code", "lira-offline-fixed-code"),
}
"""The built-in attacks, in order: of each file the names of its `ATTACKS`."""
