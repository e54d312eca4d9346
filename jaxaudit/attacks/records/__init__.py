"""Per-record membership attacks with a bank of shadow models (LiRA and others): a larger score means a member.

`__init__.pyi` lists the public names; this file imports nothing heavy. An attack learns nothing that an attacker would
not know. Without targets each model is attacked by the others; thresholds for a model come from their non-members.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

BUILT_IN: dict[str, tuple[str, ...]] = {
    "stacked": ("stacked",),
    "lira": ("bavaria-t", "lira", "lira-fixed", "lira-offline", "lira-offline-fixed"),
    "rmia": ("rmia", "rmia-offline", "base", "base-offline", "attack-p"),
}
"""The built-in attacks in order: for each file, the names of the attacks in its `ATTACKS`."""
