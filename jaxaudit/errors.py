"""The errors a user can cause."""


class InputError(ValueError):
    """What the user gave cannot be used: a file, a name, a shape, an option.

    The message is one line for a person: what is wrong, the likely cause, what to do. The command line prints
    it as it is and exits with status 2; every other exception is a failure of the program (status 1).
    """


class MissingSplit(InputError):
    """A data set that can be read has no split of the wanted name."""
