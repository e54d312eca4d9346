"""Membership attacks: was a record in a model's training set? They learn from the outputs of shadow models.

`__init__.pyi` lists the public names. Each is imported when it is first used, since some need a network library.

Attacks on outputs are by distance, by frequency, untargeted, or learned for many models at once. They run on the
device; counts are made on the host.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
