"""Rejects pickles and PyTorch's files, which run code when they are read, with a line of code that converts them."""

from pathlib import Path

from jaxaudit.errors import InputError

_PICKLE = "pickle", "pickle.load(open('FILE', 'rb'))"
_TORCH = "torch", "torch.load('FILE', map_location='cpu', weights_only=True).detach()"
PICKLES = {".pkl": _PICKLE, ".pickle": _PICKLE, ".p": _PICKLE, ".joblib": ("joblib", "joblib.load('FILE')")}
PICKLES |= dict.fromkeys((".pt", ".pth", ".bin", ".ckpt"), _TORCH)
"""Suffixes of files that are pickles, or mostly are, with the library and the call that read each.

Both are shown in a message, and never run by this package.
"""


def refuse_pickle(path: Path) -> None:
    """Rejects a pickle, with a line of code that converts it.

    Raises:
        InputError: the file has a suffix of pickles.
    """
    if path.suffix.lower() in PICKLES:
        library, call = PICKLES[path.suffix.lower()]
        raise InputError(
            f"{path}: files that end in {path.suffix} are mostly pickles, which can run code when they are read, so "
            "they are never read here. If you trust who wrote it, convert it in the environment that did: "
            f"python -c \"import numpy, {library}; numpy.save('FILE.npy', numpy.asarray({call}))\""
        )
