"""Pure functions of arrays, batched and exact, that all audits use; `__init__.pyi` lists them.

Kernels run on the host or on the device, whichever is faster there; each module says why.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
