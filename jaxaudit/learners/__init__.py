"""Learners: each trains a model by two pure functions, `fit` and `log_probs`.

A public name is imported when it is first used, since some need a network library. If a function has the name of its
module (`network`, `naive_bayes`), the attribute is the function: import from such a module by its full name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
