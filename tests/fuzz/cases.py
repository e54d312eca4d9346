"""A case: what is done to a reader's files, as a function of (seed, reader, index) alone."""

import json
import random
import re
from collections.abc import Callable
from pathlib import PurePath

from fuzz import archives, arrays, claims, columns, language, lines, names, places, texts, trees
from fuzz.damage import damaged
from fuzz.places import Hole, Tree

Way = Callable[[bytes, random.Random], tuple[bytes, str]]
BY_ENDING: dict[str, Way] = {
    ".npy": arrays.npy,
    ".npz": archives.npz,
    ".json": texts.json_document,
    ".jsonl": texts.json_lines,
    ".csv": texts.table,
    ".data": texts.table,
    ".test": texts.table,
    ".cfg": texts.table,
    ".parquet": columns.table,
    ".safetensors": trees.safetensors,
    ".msgpack": trees.flax,
    ".mat": trees.matlab,
    ".nii": trees.nifti,
    ".png": trees.png,
    "-ubyte": arrays.idx,
    ".tgz": archives.gzipped(archives.tar),
}

WORDS: dict[str, Way] = {names.SUFFIX: names.mangled, lines.SUFFIX: lines.mangled}
"""Where a file with this ending lies, it stands for what a person types, and nothing else is changed."""


class Case:
    """One input to be read.

    Attributes:
        tree: the files.
        said: what was done to them.
        options: chooses how they are read.
        meanwhile: chooses how they change while they are read; of few cases.
    """

    def __init__(self, seed: int, reader: str, index: int, base: Tree, writes: bool) -> None:
        choose = random.Random(f"{seed}/{reader}/{index}")
        self.tree: Tree = dict(base)
        self.said: list[str] = []
        self.options = random.Random(f"{seed}/{reader}/{index}/options")
        meanwhile = random.Random(f"{seed}/{reader}/{index}/meanwhile")
        self.meanwhile = meanwhile if meanwhile.random() < 0.06 else None
        for _ in range(choose.choice((1, 1, 1, 2, 3))):
            if self.tree:
                self.said.append(change(self.tree, choose, writes))


def change(tree: Tree, choose: random.Random, writes: bool) -> str:
    for hostile, share in HOSTILE:
        if choose.random() < share and (found := hostile(tree, choose)):
            return found
    for suffix, way in WORDS.items():
        for name in tree:
            if name.endswith(suffix) and isinstance(content := tree[name], bytes):
                tree[name], said = way(content, choose)
                tree.update(lines.TRAPS if suffix == lines.SUFFIX else {})
                return said
    every = sorted(tree)
    # Descriptions are few among many files of numbers.
    known = [name for name in every if way_of(name, tree[name]) is not damaged]
    name = of_one_kind(known if known and choose.random() < 0.7 else every, choose)
    content = tree[name]
    if choose.random() < 0.12 or not isinstance(content, bytes):
        return places.displaced(tree, name, choose, writes)
    way = way_of(name, content) if choose.random() < 0.6 else damaged
    changed, said = way(content, choose)
    tree[name] = changed
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
        inner = way_of(name.removesuffix(".gz"), content[2:])
        return archives.gzipped(inner)
    if name.endswith("-ubyte"):
        return arrays.idx
    if ".tfrecord" in name:
        return trees.tfrecord
    if content[:1] == b"{" and not name.endswith((".csv", ".jsonl")):
        return texts.json_document
    return BY_ENDING.get(PurePath(name).suffix.lower(), damaged)


def hollow_chunks(tree: Tree, choose: random.Random) -> str | None:
    """A zarr array whose only chunk is far larger than the array: in a file of zeros that takes no room."""
    name = next((name for name in sorted(tree) if name.endswith(".zarray")), None)
    if name is None:
        return None
    tree[name] = (
        b'{"chunks":[333333334,3],"compressor":null,"dtype":"<f4","fill_value":null,"filters":null,"order":"C",'
        b'"shape":[4,3],"zarr_format":2,"dimension_separator":"."}'
    )
    tree[name.replace(".zarray", "0.0")] = Hole(b"", 4 * 3 * 333_333_334)
    return f"{name}: chunks of 4 GB"


def equal_records(tree: Tree, choose: random.Random) -> str | None:
    """Very many equal records beside a result that counts them."""
    result = tree.get("run/result.json")
    if "run/records.parquet" not in tree or not isinstance(result, bytes):
        return None
    tree["run/records.parquet"] = columns.equal_rows()
    many = b'"records_measured": %d' % columns.EQUAL_ROWS
    tree["run/result.json"] = re.sub(rb'"records_measured": *[0-9]+', many, result)
    return f"{columns.EQUAL_ROWS} equal records"


def hostile_features(tree: Tree, choose: random.Random) -> str | None:
    """A set whose description names a class of another module, openly or within strings."""
    name = next((name for name in sorted(tree) if name.endswith("features.json")), None)
    if name is None:
        return None
    features = choose.choice(texts.HOSTILE_FEATURES)
    tree[name] = json.dumps(features).encode()
    return f"{name}: {features}"


HOSTILE: tuple[tuple[Callable[[Tree, random.Random], str | None], float], ...] = (
    (hollow_chunks, 0.08),
    (equal_records, 0.08),
    (hostile_features, 0.08),
    (claims.bank, 0.25),
    (claims.array, 0.03),
    (claims.tokenizer, 0.25),
    (language.hostile, 0.6),
)
"""What is done to whole inputs, as far as they have what it takes, and how often."""
