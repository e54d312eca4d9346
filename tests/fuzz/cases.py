"""A case: what is done to a reader's files, as a function of (seed, reader, index) alone."""

import random
from collections.abc import Callable
from pathlib import PurePath

from fuzz import archives, arrays, language, names, places, texts
from fuzz.damage import damaged
from fuzz.places import Tree

Way = Callable[[bytes, random.Random], tuple[bytes, str]]
BY_ENDING: dict[str, Way] = {
    ".npy": arrays.npy,
    ".npz": archives.npz,
    ".json": texts.json_document,
    ".jsonl": texts.json_lines,
    **dict.fromkeys((".csv", ".data", ".test", ".cfg"), texts.table),
    ".safetensors": arrays.safetensors,
    ".tgz": archives.gzipped(damaged),
}
"""Files of other kinds are damaged as bytes."""
HOSTILE: tuple[tuple[Callable[[Tree, random.Random], str | None], float], ...] = (
    (arrays.sparse_array, 0.05),
    (language.hostile, 0.6),
)
"""What is done to whole inputs, as far as they have what it takes, and how often."""


class Case:
    """One input to be read.

    Attributes:
        tree: the files.
        said: what was done to them.
        options: chooses how they are read.
    """

    def __init__(self, seed: int, reader: str, index: int, base: Tree, writes: bool) -> None:
        choose = random.Random(f"{seed}/{reader}/{index}")
        self.tree: Tree = dict(base)
        self.said: list[str] = []
        self.options = random.Random(f"{seed}/{reader}/{index}/options")
        for _ in range(choose.choice((1, 1, 1, 2, 3))):
            if self.tree:
                self.said.append(change(self.tree, choose, writes))


def change(tree: Tree, choose: random.Random, writes: bool) -> str:
    for hostile, share in HOSTILE:
        if choose.random() < share and (found := hostile(tree, choose)):
            return found
    for name, content in tree.items():
        if name.endswith(names.SUFFIX) and isinstance(content, bytes):
            tree[name], said = names.mangled(content, choose)
            return said
    every = sorted(tree)
    # Descriptions are few among many files of numbers.
    known = [name for name in every if way_of(name, tree[name]) is not damaged]
    name = of_one_kind(known if known and choose.random() < 0.7 else every, choose)
    content = tree[name]
    if choose.random() < 0.12 or not isinstance(content, bytes):
        return places.displaced(tree, name, choose, writes)
    way = way_of(name, content) if choose.random() < 0.6 else damaged
    tree[name], said = way(content, choose)
    return f"{name}: {said}"


def of_one_kind(files: list[str], choose: random.Random) -> str:
    """One of the files, as often of the few of one kind and folder as of the many of another."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name in files:
        kinds.setdefault((str(PurePath(name).parent), PurePath(name).suffix), []).append(name)
    return choose.choice(choose.choice(list(kinds.values())))


def way_of(name: str, content: object) -> Way:
    if not isinstance(content, bytes):
        return damaged
    if name.endswith(".gz"):
        return archives.gzipped(way_of(name.removesuffix(".gz"), content[2:]))
    if content[:1] == b"{" and not name.endswith((".csv", ".jsonl")):
        return texts.json_document
    return BY_ENDING.get(PurePath(name).suffix.lower(), damaged)
