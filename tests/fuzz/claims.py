"""Files that say more than they hold: descriptions with other numbers, and sparse files that bear them out."""

import io
import json
import math
import random
from typing import Any

import numpy as np

from fuzz.places import Hole, Tree

LARGEST = 100 << 20
"""Bytes that a sparse file seems to have: what it takes to read them grows with these alone."""
MOST_OUTPUTS = 2_000
"""Models that seem to have outputs: each takes its time, however few its numbers."""
LARGEST_ANYWHERE = 64 << 20
NUMBERS: dict[str, tuple[Any, ...]] = {
    "classes": (10**6, 10**6, 1000, 2, 10**9, 1, 0, -1, 3.0, 1e308, "3", None, True),
    "models": (10**6, 10**5, 21, 19, 2, 1, 0, -1, 2**63, "20"),
    "records": (25, 3, 10**6, 10**7, 89, 91, 1, 0, -1, 10**9, 2**40, 1e9),
    "queries": (2, 1, 10**4, 0, -1, 10**5),
}
SETS = ("query", "holdout", "calibration")


def entries_of(tree: Tree, name: str) -> dict[str, Any] | None:
    """The JSON object in a file of a tree; None if there is none."""
    content = tree.get(name)
    try:
        said: Any = json.loads(content) if isinstance(content, bytes) else None
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def bank(tree: Tree, choose: random.Random) -> str | None:
    """A bank whose description claims other sizes; in most cases its arrays seem to have them."""
    name = next((name for name in sorted(tree) if name.endswith("bank.json")), "")
    said = entries_of(tree, name)
    if said is None:
        return None
    classes = said.get("classes")
    for key in choose.sample(list(NUMBERS), choose.choice((1, 1, 2))):
        said[key] = choose.choice(NUMBERS[key])
    if isinstance(said.get("records"), int) and choose.random() < 0.8:
        sizes = [said["records"] // 3, said["records"] // 3, said["records"] - said["records"] // 3 * 2]
        said["counts"] = dict(
            zip(SETS, choose.choice((sizes, [*sizes[:1], -1, sizes[2]], [said["records"], 0, 0])), strict=True)
        )
        said["groups"] = False
        tree.pop(name.replace("bank.json", "groups.npy"), None)
    if "direction" in said and choose.random() < 0.5:
        said["outputs"] = choose.choice(("log_likelihood", "score", "log_odds", "logits", 1))
        said["direction"] = choose.choice(("higher", "lower", "up", None, 1))
    if said.get("classes") != classes:
        said.pop("class_names", None)
    tree[name] = json.dumps(said).encode()
    claimed = {key: said.get(key, 1) for key in NUMBERS}
    if all(type(each) is int and each >= 0 for each in claimed.values()) and choose.random() < 0.8:
        _bear_out(tree, name.removesuffix("bank.json"), said, claimed, choose)
    return f"{name}: claims {claimed}"


def _bear_out(tree: Tree, folder: str, said: dict[str, Any], of: dict[str, int], choose: random.Random) -> None:
    """Arrays of the sizes that are claimed, all of zeros but for a few rows, as far as files may seem to be large."""
    models, records = of["models"], of["records"]
    values = (records, *([of["queries"]] if of["queries"] > 1 else []))
    values += () if said.get("outputs") in ("log_odds", "score", "log_likelihood") else (of["classes"],)
    outputs = sorted(name for name in tree if name.startswith(f"{folder}outputs/"))
    for name in outputs[1:]:
        del tree[name]
    kind = choose.choice(("<f4", "<f2", "<f8"))
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "labels.npy": ("<i4", (records,)),
        "membership.npy": ("|b1", (models, records)),
        "dropped.npy": ("|b1", (records,)),
        "seeds.npy": ("<u4", (models,)),
        "correct.npy": ("|b1", (models, records)),
        "outputs.npy": (kind, (models, *values)),
        **({outputs[0].removeprefix(folder): (kind, values)} if outputs else {}),
    }
    for name, (dtype, shape) in shapes.items():
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if f"{folder}{name}" in tree and size <= LARGEST and (name != "outputs.npy" or models <= MOST_OUTPUTS):
            # Not every model is trained on nothing.
            start = b"\1\0\1" if name == "membership.npy" else b""
            tree[f"{folder}{name}"] = sparse(dtype, shape, start[:size])


def array(tree: Tree, choose: random.Random) -> str | None:
    """One of the arrays replaced by a large one of zeros that takes no room."""
    found = [name for name in sorted(tree) if name.endswith(".npy")]
    if not found:
        return None
    name, dtype = choose.choice(found), choose.choice(("<f4", "<i8", "|b1", "<U2", "|u1"))
    rows = choose.choice((10**6, 10**7))
    shape = choose.choice(((rows,), (rows, 3), (90, rows // 90), (20, rows // 20), (1, rows), (rows, 0), (rows, 1, 1)))
    if math.prod(shape) * np.dtype(dtype).itemsize > LARGEST_ANYWHERE:
        return None
    tree[name] = sparse(dtype, shape)
    return f"{name}: {dtype} {shape} of zeros in a sparse file"


def sparse(dtype: str, shape: tuple[int, ...], start: bytes = b"") -> Hole:
    """A .npy file of this shape, of zeros but for its first bytes."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    head = file.getvalue()
    return Hole(head + start, len(head) + math.prod(shape) * np.dtype(dtype).itemsize)


def _replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


PARTS: dict[str, tuple[Any, ...]] = {
    "normalizer": (
        {"type": "Sequence", "normalizers": [_replace("ee", String="e")] * 40},
        {"type": "Sequence", "normalizers": [_replace("ee", Regex="(?=e)"), {"type": "NFKC"}] * 20},
        {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁" * 60}] * 9},
        {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 40},
        _replace("x" * 10**6, Regex=""),
        {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    ),
    "decoder": ({"type": "Sequence", "decoders": [_replace("ee", String="e")] * 40}, {"type": "Fuse"}),
    "pre_tokenizer": (_split(r"(\w+\w*)+$"), _split(r"((a|e)*)*x"), _split("((((("), {"type": "WhitespaceSplit"}),
    "padding": ({"strategy": {"Fixed": 2**40}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "a"},),
    "truncation": ({"max_length": 0, "strategy": "LongestFirst", "stride": 9, "direction": "Right"},),
}
"""What a `tokenizer.json` may ask for that makes texts long, or takes long."""


def tokenizer(tree: Tree, choose: random.Random) -> str | None:
    """A tokenizer that is random, makes texts longer and longer, or has a regular expression that does not end."""
    name = next((name for name in sorted(tree) if name.endswith("tokenizer.json")), "")
    content = tree.get(name)
    try:
        said: Any = json.loads(content) if isinstance(content, bytes) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not isinstance(said.get("model"), dict):
        return None
    part = choose.choice((*PARTS, "dropout"))
    if part == "dropout":
        said["model"]["dropout"] = choose.choice((0.5, 1.0, 2.0, "0.5"))
    else:
        said[part] = choose.choice(PARTS[part])
    tree[name] = json.dumps(said).encode()
    return f"{name}: {part} {str(said.get(part))[:80]}"
