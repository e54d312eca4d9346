"""Membership attacks: was this record in the training set? Outputs of shadow models in, one score per target out.

`__init__.pyi` lists the names, imported when first used: only the untargeted attack needs a network library.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
