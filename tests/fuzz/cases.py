"""A case: a reader's valid input, and what is done to its files as a function of (seed, reader, index) alone."""

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fuzz import odd
from fuzz.damage import damaged, way_of


class Reader(NamedTuple):
    """A way into the package.

    Attributes:
        name: what it is called on the command line.
        make: writes a valid input into an empty folder.
        read: reads what lies in that folder, and changes nothing there; the random numbers choose its options.
    """

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path, random.Random], object]


def only(folder: Path, *beginnings: str) -> Path:
    """The file that is read alone: the first whose name begins so, else the first there is."""
    entries = sorted(folder.iterdir(), key=lambda path: (not path.name.startswith(beginnings), path.name))
    return entries[0] if entries else folder / "nothing"


class Special(NamedTuple):
    """No usual file: a symbolic `link` to this place, a `pipe`, an empty `folder`, or a `hole` of so many zeros."""

    kind: str
    to: str = ""
    size: int = 0


Tree = dict[str, bytes | Special]
"""Files by their paths; folders are made for them."""
LINKS = ("nothing", ".", "../outside/kept", "../outside", "/dev/zero", "/dev/null")
CONTENTS = (b"", b"\0" * 4096, b"\x1f\x8b", b"\n", b"PK\5\6" + bytes(18), odd.PICKLE)
INSTEAD = (*(Special("link", to) for to in LINKS), *[Special("pipe")] * 2, Special("folder"), *CONTENTS)
BESIDE: tuple[tuple[str, bytes | Special], ...] = (
    *(
        (name, odd.PICKLE)
        for name in ("pytorch_model.bin", "model.safetensors", "tokenizer.model", "adapter_model.bin")
    ),
    ("model.safetensors.index.json", b'{"weight_map": {"a": "../../outside/kept"}}'),
    *((name, Special("hole", size=2**33)) for name in ("model.safetensors", "tokenizer.json", "chat_template.jinja")),
    *((name, odd.OWN_CODE.encode()) for name in ("custom_generate/generate.py", "tokenization_own.py", "__init__.py")),
)
"""Files by which a folder of a language model asks for code, memory or other files."""


def load_tree(folder: Path) -> Tree:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def make_case(seed: int, reader: str, index: int, base: Tree) -> tuple[Tree, list[str], random.Random]:
    """The files of an input, what was done to them, and what chooses how they are read."""
    choose, tree = random.Random(f"{seed}/{reader}/{index}"), dict(base)
    said = [change(tree, choose) for _ in range(choose.choice((1, 1, 1, 2, 3))) if tree]
    return tree, said, random.Random(f"{seed}/{reader}/{index}/options")


def change(tree: Tree, choose: random.Random) -> str:
    """What was done to one of the files, as often of the few of one kind and folder as of the many of another."""
    kinds: dict[tuple[Path, str], list[str]] = {}
    for name in sorted(tree):
        kinds.setdefault((Path(name).parent, Path(name).suffix), []).append(name)
    name = choose.choice(choose.choice(list(kinds.values())))
    content, path, typed = tree[name], Path(name), name.endswith(".name")
    if isinstance(content, bytes) and (typed or choose.random() < 0.88):
        way = way_of(name, content) if typed or choose.random() < 0.6 else damaged
        tree[name], said = way(content, choose)
        return f"{name}: {said}"
    match choose.randrange(8):
        case 0:
            del tree[name]
            return f"{name}: gone"
        case 1:
            other, beside = choose.choice(BESIDE)
            tree[str(path.parent / other)] = beside
            return f"{name}: joined by {other}"
        case 2 | 3 as way:
            odd_name = choose.choice(odd.NAMES).translate({0: "_", ord("/"): "_"}).encode("utf-8", "surrogateescape")
            other = str(path.with_name((odd_name[:200].decode("utf-8", "surrogateescape") or "_") + path.suffix))
            tree[other] = tree.pop(name) if way == 2 else choose.choice((content, *INSTEAD))
            return f"{name}: {'called' if way == 2 else 'joined by'} {other!r}"
        case _:
            tree[name] = choose.choice((*INSTEAD, Special("link", path.name)))
            return f"{name}: replaced by {str(tree[name])[:60]}"


def lay_out(tree: Tree, folder: Path) -> None:
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        match content:
            case bytes():
                path.write_bytes(content)
            case Special("link", to):
                path.symlink_to(os.path.relpath(folder / to, path.parent) if to.startswith("../") else to)
            case Special("pipe"):
                os.mkfifo(path)
            case Special("folder"):
                path.mkdir()
            case Special(_, _, size):
                path.touch()
                os.truncate(path, size)


def state(folder: Path) -> dict[str, tuple[int, ...]]:
    """What changes when a file or a folder there does."""
    found = {str(path): path.lstat() for path in folder.rglob("*")}
    of_files = ("st_ino", "st_size", "st_mtime_ns")
    return {
        name: (each.st_mode, *(getattr(each, field) for field in of_files if not stat.S_ISDIR(each.st_mode)))
        for name, each in found.items()
    }
