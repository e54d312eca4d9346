"""jaxaudit: what does a trained classifier still remember?"""

from jaxaudit.version import __version__

__all__ = ["__version__"]
