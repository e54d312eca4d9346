"""jaxaudit: what does a trained model still remember?

The public names are imported when first used, so that `import jaxaudit` is fast; `__init__.pyi` lists them.
Subpackages: `metrics` for outputs of models that you already have, `attacks`, `kernels`, `models`.

>>> import jaxaudit
>>> jaxaudit.metrics.holm([0.01, 0.04])
(0.02, 0.04)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
