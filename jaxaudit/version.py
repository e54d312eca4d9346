"""The version, alone in a module that imports nothing, so that `--version` and the build stay instant."""

__version__ = "0.1.0"
