"""Membership attacks: was a record in a model's training set? They learn from the outputs of shadow models.

`__init__.pyi` lists the public names. Each is imported when it is first used, since some need a network library.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
