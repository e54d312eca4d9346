"""Learners: ways to train one model, each as two pure functions; `__init__.pyi` lists the names, imported when used.

Who only plans or reads models needs no network library. Import from a module that has the name of its function
(`logistic_regression`, `naive_bayes`, `network`, `random_trees`) by its full name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
