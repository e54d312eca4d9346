"""Data sets, tables of people and texts."""

import gzip
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from support.prepared_set import tiny_digits
from support.small_sets import write_mnist

from fuzz.cases import Reader, only
from fuzz.odd import SECRET, SECRET_NUMBER
from jaxaudit import read_texts
from jaxaudit.data import load, load_table, must_be_opened, open_records

RNG = np.random.default_rng
IMAGES = RNG(0).integers(0, 256, (12, 6, 5), dtype=np.uint8)
LABELS = np.arange(12) % 3
ROWS = RNG(1).normal(size=(12, 4)).astype(np.float32)


def read_set(folder: Path, choose: random.Random) -> object:
    """The folder's only file, by its path."""
    return load(f"{only(folder, 'x', 'train')}{choose.choice(('', '', '@train', '@test', '@all', '@val'))}")


def read_folder(folder: Path, choose: random.Random) -> object:
    """The folder as a set, by a name with or without a split."""
    size, gray = choose.choice((None, (7, 7))), choose.random() < 0.5
    split = choose.choice(("", "", "@train", "@all", "@test[:5]"))
    return load(f"{folder}{split}", image_size=size, gray=gray)


def read_arrays(folder: Path, choose: random.Random) -> object:
    """Records that stay in their file: all slices, and what is made of them."""
    path = only(folder, "x") if choose.random() < 0.7 else folder
    found = open_records(path)
    must_be_opened(path)
    return None if found is None else (found.content_hash, [found.inputs[i : i + 5] for i in range(0, len(found), 5)])


def npz_arrays(folder: Path) -> None:
    """Two arrays of one record, one stored and one compressed, and labels that are no classes."""
    for number, name in enumerate(("ids", "mask", "y")):
        kind = zipfile.ZIP_DEFLATED if number == 1 else zipfile.ZIP_STORED
        with zipfile.ZipFile(folder / "x.npz", "a", kind) as archive, archive.open(f"{name}.npy", "w") as member:
            np.save(member, (LABELS, ROWS, ROWS[:, :2])[number])


def npy_folder(folder: Path) -> None:
    for split, rows in (("train", slice(8)), ("test", slice(8, 12))):
        np.save(folder / f"x_{split}.npy", IMAGES[rows])
        np.save(folder / f"y_{split}.npy", LABELS[rows])
    np.save(folder / "class_names.npy", np.array(["ant", "bee", "cat"]))


def csv_rows(folder: Path) -> None:
    """Numbers with a header line, an index and a label; one number that no message may show."""
    lines = [f"{row},{a:.3f},{b:.3f},{LABELS[row]}" for row, (a, b) in enumerate(ROWS[:, :2])]
    lines[3] = f"3,{SECRET_NUMBER},0,1"
    (folder / "x.csv").write_text("\n".join(["id,a,b,label", *lines, ""]))


def images(folder: Path) -> None:
    """Two classes of pictures of every kind: gray, and in colour or with a palette."""
    gray, colour = Image.fromarray(IMAGES[0]), Image.fromarray(RNG(3).integers(0, 256, (6, 5, 3), dtype=np.uint8))
    for place, suffix in enumerate(("png", "jpeg", "bmp", "webp")):
        (folder / f"class{place % 2}").mkdir(exist_ok=True)
        gray.save(folder / f"class{place % 2}" / f"gray.{suffix}")
        (colour.quantize(7) if suffix in ("png", "bmp") else colour).save(
            folder / f"class{place % 2}" / f"{place}.{suffix}"
        )


def read_prepared_set(folder: Path, choose: random.Random) -> object:
    """By its name in a data directory, or by its own folder."""
    split = choose.choice(("", "", "@all", "@test", "@train[:3]"))
    if choose.random() < 0.5:
        return load(f"tiny_digits{split}")
    return load(f"{folder / 'tiny_digits' / '1.0.0'}{split}", image_size=choose.choice((None, (9, 9))))


def people(folder: Path) -> None:
    cells = [f"{20 + row},{('red', 'green', 'NA', SECRET)[row % 4]},{row * 1.5},{'ny'[row % 2]}" for row in range(16)]
    cells[5] = f"25,{SECRET},{SECRET_NUMBER},n"
    (folder / "x.csv").write_text("\n".join(["age,colour,weight,label", *cells, ""]))


def read_people(folder: Path, choose: random.Random) -> object:
    chosen: dict[str, Any] = {"label": choose.choice((None, None, "label", "colour"))}
    for option in ("categorical", "drop"):
        chosen[option] = choose.choice(((), (), (), ("age",), ("colour",), ("weight", "nothing")))
    return load_table(str(only(folder, "x")), **chosen)


def texts(folder: Path) -> None:
    lines = [
        {"question": f"{SECRET} {row}?", "answer": f"é {row}", "set": "query", "group": f"g{row // 2}", "pair": row}
        for row in range(8)
    ]
    text = "\n".join(map(json.dumps, lines))
    (folder / "x.jsonl").write_text(text)
    (folder / "y.jsonl.gz").write_bytes(gzip.compress(text.encode()))


def read_lines(folder: Path, choose: random.Random) -> object:
    found = read_texts(only(folder, choose.choice("xy")))
    return found.form, [found.column(name) for name in ("set", "group", "pair", "index")]


READERS = [
    Reader("texts", texts, read_lines),
    Reader("npy-folder", npy_folder, read_folder),
    Reader("npz", lambda folder: np.savez_compressed(folder / "x.npz", x=ROWS, y=LABELS), read_set),
    Reader("npz-arrays", npz_arrays, read_arrays),
    Reader("csv", csv_rows, read_set),
    Reader("idx", lambda folder: write_mnist(folder, "-idx{}-ubyte"), read_folder),
    Reader("images", images, read_folder),
    Reader("tfds", tiny_digits, read_prepared_set),
    Reader("people", people, read_people),
]
