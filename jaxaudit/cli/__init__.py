"""The command line: the only place that prints, makes a random key from a seed, or turns a string into a choice.

Its functions raise `InputError` for options and data that cannot be used.
"""

from jaxaudit.cli.app import main

__all__ = ["main"]
