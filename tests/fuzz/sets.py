"""Readers of data sets and tables of people."""

import gzip
import io
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import scipy.io
from PIL import Image
from support.prepared_set import tiny_digits

from fuzz.readers import SECRET, SECRET_NUMBER, Reader, only
from jaxaudit.data import load, load_path, load_table
from jaxaudit.data.records import must_be_opened, open_records
from jaxaudit.data.sets.acdc import load_acdc

SPLITS = (None, None, None, "train", "test", "all", "val")
RNG = np.random.default_rng
IMAGES = RNG(0).integers(0, 256, (12, 6, 5), dtype=np.uint8)
LABELS = np.arange(12) % 3
ROWS = RNG(1).normal(size=(12, 4)).astype(np.float32)


def read_set(folder: Path, choose: random.Random) -> object:
    """The folder's only file, by its path."""
    return load_path(only(folder, "x", "train"), split=choose.choice(SPLITS))


def read_folder(folder: Path, choose: random.Random) -> object:
    """The folder as a set, by a name with or without a split."""
    size, gray = choose.choice((None, (7, 7))), choose.random() < 0.5
    split = choose.choice(("", "", "@train", "@all", "@test[:50%]"))
    return load(f"{folder}{split}", image_size=size, gray=gray)


def read_with_labels(folder: Path, choose: random.Random) -> object:
    """A file of inputs and one of labels."""
    return load_path(only(folder, "x"), only(folder, "y"))


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
    """Images and labels of two splits, and the classes' names."""
    for split, rows in (("train", slice(8)), ("test", slice(8, 12))):
        np.save(folder / f"x_{split}.npy", IMAGES[rows])
        np.save(folder / f"y_{split}.npy", LABELS[rows])
    np.save(folder / "class_names.npy", np.array(["ant", "bee", "cat"]))


def npy_pair(folder: Path) -> None:
    """Rows of numbers; one-hot labels beside them."""
    np.save(folder / "x.npy", ROWS)
    np.save(folder / "x_labels.npy", np.eye(3, dtype=np.int8)[LABELS])


def npz(folder: Path) -> None:
    """Packed rows and labels."""
    np.savez_compressed(folder / "x.npz", x=ROWS, y=LABELS)


def npz_splits(folder: Path) -> None:
    """Two splits of images, labels as text, unpacked."""
    names = np.array(["ant", "bee", "cat"])
    arrays: dict[str, Any] = {"x_train": IMAGES[:8], "y_train": names[LABELS[:8]], "x_test": IMAGES[8:]}
    np.savez(folder / "x.npz", **arrays, y_test=names[LABELS[8:]], class_names=names)


def labels_elsewhere(folder: Path) -> None:
    """Inputs as .npz, labels as .csv."""
    np.savez(folder / "x.npz", x=ROWS)
    (folder / "y.csv").write_text("label\n" + "".join(f"{label}\n" for label in LABELS))


def csv_rows(folder: Path) -> None:
    """Numbers with a header line, an index and a label; one number that no message may show."""
    lines = [f"{row},{a:.3f},{b:.3f},{LABELS[row]}" for row, (a, b) in enumerate(ROWS[:, :2])]
    lines[3] = f"3,{SECRET_NUMBER},0,1"
    (folder / "x.csv").write_text("\n".join(["id,a,b,label", *lines, ""]))


def idx_bytes(array: np.ndarray) -> bytes:
    """An array of bytes as an IDX file."""
    return (
        bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def idx_folder(pack: Callable[[bytes], bytes], ending: str) -> Callable[[Path], None]:
    """MNIST's four files, packed or not."""

    def make(folder: Path) -> None:
        for split, rows in (("train", slice(8)), ("t10k", slice(8, 12))):
            (folder / f"{split}-images-idx3-ubyte{ending}").write_bytes(pack(idx_bytes(IMAGES[rows])))
            (folder / f"{split}-labels-idx1-ubyte{ending}").write_bytes(pack(idx_bytes(LABELS[rows])))

    return make


def packed(data: bytes) -> bytes:
    """By gzip, without the time."""
    return gzip.compress(data, mtime=0)


def matlab(folder: Path) -> None:
    """SVHN's two files."""
    for split, rows in (("train", 8), ("test", 4)):
        content = {"X": RNG(2).integers(0, 256, (4, 5, 3, rows), dtype=np.uint8), "y": LABELS[:rows, None] + 1}
        scipy.io.savemat(folder / f"{split}_32x32.mat", content, do_compression=split == "train")


def image_folders(suffix: str, splits: tuple[str, ...] = ("",)) -> Callable[[Path], None]:
    """Two classes of two pictures of this kind: one gray, the others in colour, with a palette or of two tones."""

    def make(folder: Path) -> None:
        gray = Image.fromarray(IMAGES[0])
        colour = Image.fromarray(RNG(3).integers(0, 256, (6, 5, 3), dtype=np.uint8))
        kinds = [gray, colour, colour if suffix in ("jpeg", "webp", "ppm") else colour.quantize(7), gray.convert("1")]
        kinds[3] = kinds[3].convert("L") if suffix in ("jpeg", "webp") else kinds[3]
        for split in splits:
            for place, picture in enumerate(kinds):
                path = folder / split / f"class{place % 2}" / f"{place}.{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                (picture.resize((9, 7)) if split == "test" else picture).save(path)

    return make


def acdc(folder: Path) -> None:
    """Two patients and the table of their scanners."""
    (folder / "field_strength.csv").write_text("patient,field_strength\npatient001,1.5\n2,3T\n")
    for number, group in ((1, "DCM"), (2, "RV")):
        patient = folder / f"patient00{number}"
        patient.mkdir()
        (patient / "Info.cfg").write_text(f"ED: 1\nGroup: {group}\n")
        volume = nibabel.Nifti1Image(RNG(number).integers(0, 900, (5, 6, 2, 2)).astype(np.int16), np.eye(4))
        (patient / f"{patient.name}_4d.nii.gz").write_bytes(packed(volume.to_bytes()))


def read_acdc(folder: Path, choose: random.Random) -> object:
    """The slices of one scanner."""
    return load_acdc(folder, folder / "field_strength.csv", choose.choice((1.5, 3.0)), size=8)


def prepared(folder: Path) -> None:
    """A set that TensorFlow Datasets prepared."""
    tiny_digits(folder)


def prepared_tfrecord(folder: Path) -> None:
    """The same in files of the older kind, whose checksums nobody looks at."""
    from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

    found = tiny_digits(folder).folder
    for path in sorted(found.glob("*.array_record*")):
        reader = array_record_module.ArrayRecordReader(str(path))
        records = reader.read_all()
        reader.close()
        path.unlink()
        lines = [struct.pack("<Q4x", len(record)) + record + bytes(4) for record in records]
        path.with_name(path.name.replace("array_record", "tfrecord")).write_bytes(b"".join(lines))
    info = found / "dataset_info.json"
    info.write_text(info.read_text().replace('"array_record"', '"tfrecord"'))


def read_prepared_set(folder: Path, choose: random.Random) -> object:
    """By its name in a data directory, or by its own folder."""
    split = choose.choice(("", "", "@all", "@test", "@train[:30%]"))
    if choose.random() < 0.5:
        return load(f"tfds:tiny_digits{split}", data_dir=folder)
    return load(f"{folder / 'tiny_digits' / '1.0.0'}{split}", image_size=choose.choice((None, (9, 9))))


def people(folder: Path) -> None:
    """Numbers, categories, missing values and a label."""
    cells = [f"{20 + row},{('red', 'green', '?', SECRET)[row % 4]},{row * 1.5},{'ny'[row % 2]}" for row in range(16)]
    cells[5] = f"25,{SECRET},{SECRET_NUMBER},n"
    (folder / "x.csv").write_text("\n".join(["age,colour,weight,class", *cells, ""]))


def read_table(folder: Path, choose: random.Random) -> object:
    """A person's own table, with columns chosen or not."""
    chosen: dict[str, Any] = {"label": choose.choice((None, None, "class", "colour"))}
    for option in ("categorical", "numeric", "drop"):
        chosen[option] = choose.choice(((), (), (), ("age",), ("colour",), ("weight", "nothing")))
    return load_table(str(only(folder, "x")), **chosen)


PERSON = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "


def adult(folder: Path) -> None:
    """UCI's two files, one packed."""
    (folder / "adult").mkdir()
    lines = [f"{PERSON}{country}, {income}" for country in ("United-States", "?") for income in ("<=50K", ">50K")]
    (folder / "adult" / "adult.data").write_text("\n".join([*lines, ""]))
    (folder / "adult" / "adult.test.gz").write_bytes(packed(f"|comment\n{lines[0]}.\n{lines[1]}.\n".encode()))


def location(folder: Path) -> None:
    """The archive of check-ins."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        content = b'"2",0,1,1\n"10",1,0,1\n"2",0,0,0\n'
        info = tarfile.TarInfo("bangkok")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    (folder / "location").mkdir()
    (folder / "location" / "dataset_location.tgz").write_bytes(packed(file.getvalue()))


def purchase(folder: Path) -> None:
    """Transactions of a few customers."""
    header = "id,chain,dept,category,company,brand,date,productsize,productmeasure,purchasequantity,purchaseamount"
    lines = [f"{c},205,7,{100 * k},107,9,2012-03-02,16,OZ,1,1.5" for c in range(16) for k in range(5) if c >> k & 1]
    (folder / "purchase").mkdir()
    (folder / "purchase" / "transactions.csv").write_text("\n".join([header, *lines, ""]))


def acs(folder: Path) -> None:
    """Person files of two states."""
    header, rows = "PUMA,AGEP,SEX,MSP,RAC1P,PINCP", ["a,28,1,6,1,35000.0", "b,3,2,N,9,N", "c,95,2,1,4,50001.0"]
    (folder / "acs").mkdir()
    (folder / "acs" / "dc.csv").write_text("\n".join([header, *rows, ""]))
    (folder / "acs" / "md.csv.gz").write_bytes(packed("\n".join([header, *rows, ""]).encode()))


def named_table(name: str) -> Callable[[Path, random.Random], object]:
    """Reads a table by its name from the data directory."""

    def read(folder: Path, choose: random.Random) -> object:
        return load_table(f"{name}{choose.choice(('', '', '@all', '@train[:2]'))}", data_dir=folder)

    return read


PICTURES = {"png": 3, "jpeg": 1, "tiff": 3, "bmp": 1, "gif": 1, "webp": 1, "ppm": 1}
READERS = [
    Reader("npy-folder", npy_folder, read_folder, 4),
    Reader("npy", npy_pair, read_set, 4),
    Reader("npz", npz, read_set, 6),
    Reader("npz-arrays", npz_arrays, read_arrays, 4),
    Reader("npz-splits", npz_splits, read_set),
    Reader("labels", labels_elsewhere, read_with_labels),
    Reader("csv", csv_rows, read_set, 4),
    Reader("idx", idx_folder(bytes, ""), read_folder),
    Reader("idx-gz", idx_folder(packed, ".gz"), read_folder),
    Reader("mat", matlab, read_set, 3),
    Reader("mat-folder", matlab, read_folder),
    *(Reader(f"images-{kind}", image_folders(kind), read_folder, share) for kind, share in PICTURES.items()),
    Reader("images-splits", image_folders("png", ("train", "test")), read_folder),
    Reader("acdc", acdc, read_acdc, 4),
    Reader("tfds", prepared, read_prepared_set, 5),
    Reader("tfds-tfrecord", prepared_tfrecord, read_prepared_set),
    Reader("people", people, read_table, 6),
    Reader("adult", adult, named_table("adult")),
    Reader("location", location, named_table("location"), 4),
    Reader("purchase", purchase, named_table("purchase"), 1),
    Reader("acs", acs, named_table("acs")),
]
