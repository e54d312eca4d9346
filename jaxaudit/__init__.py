"""jaxaudit: what does a trained classifier still remember?

The public names, imported when first used, so that `import jaxaudit` costs nothing; `__init__.pyi` lists them. Rooms of
it are names here, too: `metrics` for who holds outputs of models and nothing else, `attacks`, `kernels`, `models`.

>>> import jaxaudit
>>> jaxaudit.metrics.publishable(0.5)
True
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
