"""The papers' metrics and tests, computed from arrays of model outputs.

`docs/api/numbers.rst` has them by question.

If a function has the name of its module (`pdtp`, `efficacy`), the attribute is the function: import from such a module
by its full name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
