"""Paths of files, in a form that may be shared."""

import os
import re

_FOLDERS = re.compile(r"(?P<before>[^/\\~]*[:=])??(?P<path>(?:[~/\\]|[A-Za-z]:[/\\]).*)", re.DOTALL)


def without_folders(text: str) -> str:
    """A path, or an option that ends in one, without the folders above the current one.

    A path from the root or a home folder reveals names of users and projects. Below the working directory it becomes
    relative; elsewhere only its last part is kept. Other text, and relative paths, are not changed.

    >>> without_folders("/somewhere/else/q.npz@train[:100]"), without_folders("acdc:~/ACDC@3.0")
    ('q.npz@train[:100]', 'acdc:ACDC@3.0')
    >>> without_folders("retrained=/runs/a.safetensors"), without_folders("../q.npz"), without_folders("mnist:0.5")
    ('retrained=a.safetensors', '../q.npz', 'mnist:0.5')
    """
    found = _FOLDERS.fullmatch(text)
    if found is None:
        return text
    path = os.path.expanduser(found["path"])
    try:
        below = os.path.relpath(path, os.getcwd()) if os.path.isabs(path) else os.pardir
    except (OSError, ValueError):  # the working directory is gone, or on another drive
        below = os.pardir
    name = re.split(r"[/\\]", found["path"].rstrip("/\\"))[-1] or found["path"]
    return (found["before"] or "") + (name if below.split(os.sep)[0] == os.pardir else below)
