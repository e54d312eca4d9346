"""Sets of TensorFlow Datasets that are prepared: their names, where they are, and their records, without TensorFlow.

TFDS itself imports the module of every class that `features.json` or `dataset_info.json` names. A data file must not
choose which code runs: here names are only compared, and TFDS is given this package's features.
"""

import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.data.examples import Examples, joined
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.images import opened_image, stack_images
from jaxaudit.data.labels import MOST_CLASSES
from jaxaudit.data.paths import entries, exists, expanded, file_size, open_data, read_small, regular_files
from jaxaudit.data.selection import choose_parts, split_name
from jaxaudit.errors import InputError

_NAME = re.compile(r"(?P<base>\w+)(?:/(?P<config>[\w\-.+]+))?(?::(?P<version>\d+\.\d+\.\d+))?", re.ASCII)
_LONGEST_NAME = 200  # a folder's cannot have more than 255 bytes


class SetName(NamedTuple):
    """A TFDS name: `base[/config][:version]`."""

    base: str
    config: str = ""
    version: str = ""


def parse_set_name(name: str) -> SetName | None:
    """`name` as a TFDS name, or None where it cannot be one.

    >>> parse_set_name("emnist/letters:3.1.0")
    SetName(base='emnist', config='letters', version='3.1.0')
    """
    match = _NAME.fullmatch(name) if len(name) <= _LONGEST_NAME else None
    return SetName(**match.groupdict("")) if match else None


def data_folder() -> Path | None:
    """The data directory, `$JAXAUDIT_DATA`, or none."""
    chosen = os.environ.get("JAXAUDIT_DATA")
    return expanded(chosen) if chosen else None


def on_disk(source: str) -> Path | None:
    """The file or folder of this name, here or else in the data directory; None if there is none."""
    in_folder, folder = expanded(source), data_folder()
    path = in_folder if exists(in_folder) or folder is None else folder / source
    return path if exists(path) else None


def file_and_split(name: str) -> tuple[Path | None, str]:
    """The path and the split of the set `NAME[@SPLIT]`, each None or empty if there is none."""
    source, split = name_and_split(name)
    return on_disk(source), split


def name_and_split(name: str) -> tuple[str, str]:
    """`NAME[@SPLIT]` as (name, split); an existing path may itself contain an `@`."""
    return (name, "") if exists(expanded(name)) else split_name(name)


def set_folders() -> tuple[Path, ...]:
    """The folders with prepared sets: the data directory, `$TFDS_DATA_DIR`, `~/tensorflow_datasets`."""
    candidates = [data_folder(), os.environ.get("TFDS_DATA_DIR"), Path("~/tensorflow_datasets")]
    folders = (expanded(folder) for folder in candidates if folder)
    # If the home folder is unknown, the path still begins with `~`, and would be relative to the current folder.
    return tuple(dict.fromkeys(folder for folder in folders if folder.parts[:1] != ("~",)))


def find_prepared(name: SetName, folders: tuple[Path, ...]) -> Path | None:
    """The folder of the set in the first of `folders` that has it: the newest version, or the named one."""
    for folder in folders:
        root = folder / name.base / name.config
        places = [root] if name.config or _versions(root) else _subfolders(root)
        versions = {place: folders_of_place for place in places if (folders_of_place := _versions(place, name.version))}
        if len(versions) > 1:
            raise InputError(
                f"{name.base} is prepared in {folder} with several configs; name one: "
                + ", ".join(f"{name.base}/{place.name}" for place in versions)
            )
        for folders_of_place in versions.values():
            return folders_of_place[-1]
    return None


def is_prepared_folder(path: Path) -> bool:
    """Whether `path` is the folder of one version of a prepared set."""
    return (path / "dataset_info.json").is_file() and (path / "features.json").is_file()


def _subfolders(path: Path) -> list[Path]:
    return [child for child in entries(path) if child.is_dir()] if exists(path) and path.is_dir() else []


def _versions(path: Path, version: str = "") -> list[Path]:
    """The folders of prepared versions, or of this one, the newest last."""
    version_folders = [child for child in _subfolders(path) if re.fullmatch(r"\d+\.\d+\.\d+", child.name)]
    version_folders = [child for child in version_folders if version in ("", child.name) and is_prepared_folder(child)]
    return sorted(version_folders, key=lambda child: [int(part) for part in child.name.split(".")])


def known_names() -> tuple[str, ...]:
    """The names of the sets of the installed TensorFlow Datasets."""
    import tensorflow_datasets as tfds

    return tuple(tfds.list_builders(with_community_datasets=False))


_PIL_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "GIF")  # those TFDS stores
_CHUNK = 1000
_LARGEST_METADATA = 1 << 24
_LARGEST_INFO = 1 << 21
"""Of the description, whose parser takes a second for each MiB."""
_DAMAGED = "if it is damaged, delete it and prepare it again."
_OWN = "tensorflow_datasets.core.features."
_CONTENT_KEYS = ("featuresDict", "image", "classLabel")


class StoredImages(NamedTuple):
    """How the images and classes of a set are stored; `image` and `label` are the features that hold them."""

    image: str
    label: str
    channels: int
    class_names: tuple[str, ...]


def read_prepared(folder: Path, split: str, name: str, size: tuple[int, int] | None, gray: bool) -> Examples:
    """The records of one version of a prepared set, without TensorFlow: images as `stack_images` gives them, in the
    order of the record files (array_record or tfrecord). `split` is in the syntax of `selection.parse_split`, or empty
    for the only split, else `train`.
    """
    for _ in regular_files(folder):  # the libraries below open files by name
        pass
    with parsing(f"{name}: the prepared set in {folder} cannot be read", _DAMAGED):
        builder = _open(folder)
        stored = _read_features(folder, builder.info.supervised_keys, name)
    pieces = []
    for part in choose_parts(split, tuple(builder.info.splits), name):
        span = part.span(builder.info.splits[part.split].num_examples, name)
        with parsing(f"{name}: the prepared set in {folder} cannot be read", _DAMAGED):
            images, labels = _decode(builder, folder, part.split, stored, span, name, size, gray)
        pieces.append(Examples(images, labels, stored.class_names, name))
    return joined(pieces, name)


def _open(folder: Path) -> Any:
    """TFDS's builder of a prepared set, with this package's features and no other class names in its metadata."""
    import tensorflow_datasets as tfds
    from google.protobuf import json_format
    from tensorflow_datasets.core import read_only_builder
    from tensorflow_datasets.core.proto import dataset_info_pb2

    text = read_small(folder / "dataset_info.json", _LARGEST_INFO).decode()
    proto: Any = json_format.Parse(text, dataset_info_pb2.DatasetInfo())  # pyright: ignore[reportAttributeAccessIssue]
    proto.ClearField("module_name")
    proto.features.CopyFrom(tfds.features.FeaturesDict({"image": tfds.features.Image()}).to_proto())
    return read_only_builder.ReadOnlyBuilder(builder_dir=folder, info_proto=proto)


def _read_features(folder: Path, supervised_keys: Any, name: str) -> StoredImages:
    """The entries of `features.json` for the image and the class; a damaged file raises any exception."""
    nodes = _content(json.loads(read_small(folder / "features.json", _LARGEST_METADATA)))["features"]
    kinds = {key: _kind(node) for key, node in nodes.items()}
    images, labels = ([key for key, kind in kinds.items() if kind == of] for of in ("Image", "ClassLabel"))
    # The supervised keys, else the only image and class.
    keys = supervised_keys if isinstance(supervised_keys, tuple) else (*images, *labels)
    if len(keys) != 2 or keys[0] not in images or keys[1] not in labels:
        raise InputError(
            f"{name} is not an image-classification set: one image and one class label are needed; it has "
            f"{', '.join(f'{key} ({kind})' for key, kind in sorted(kinds.items())[:20])}."
        )
    image, label = (_content(nodes[key]) for key in keys)
    dimensions = image["shape"]["dimensions"]
    if len(dimensions) != 3 or image["dtype"] != "uint8" or int(dimensions[2]) not in _PIL_MODES:
        raise ValueError(f"images of shape {dimensions[:4]} and type {str(image['dtype'])[:20]}")
    count = int(label.get("numClasses") or 0)
    path = folder / f"{keys[1].replace('/', '.')}.labels.txt"
    lines = read_small(path, _LARGEST_METADATA).decode().split("\n") if exists(path) else []
    names = tuple(line.strip() for line in lines if line.strip())
    if not 0 <= count <= MOST_CLASSES or (names and len(names) != count):
        raise ValueError(f"{len(names)} names of {count} classes")
    return StoredImages(*keys, int(dimensions[2]), names or tuple(map(str, range(count))))


def _kind(node: Any) -> str:
    """TFDS's name of the class of a feature; the full name for a class of another package."""
    class_name = str(node["pythonClassName"])
    return class_name.rpartition(".")[2] if class_name.startswith(_OWN) else class_name[:80]


def _content(node: Any) -> dict[str, Any]:
    content = next(node[key] for key in _CONTENT_KEYS if key in node)
    if not isinstance(content, dict):
        raise TypeError("the content of a feature is not a JSON object")
    return content


def _decode(
    builder: Any,
    folder: Path,
    split: str,
    stored: StoredImages,
    span: range,
    name: str,
    size: tuple[int, int] | None,
    gray: bool,
) -> tuple[np.ndarray, np.ndarray]:
    # As long as the records that are read, not as the metadata declare.
    labels: list[int] = []

    def called(row: int) -> str:
        return f"{name}: record {span[row]}"

    def images() -> Iterator[np.ndarray]:
        # Six times faster on MNIST than decoding by TFDS; threads make it slower.
        from tensorflow_datasets.proto import tf_example_pb2

        parse = tf_example_pb2.Example.FromString  # pyright: ignore[reportAttributeAccessIssue]
        for row, record in enumerate(_records(builder, folder, split, span)):
            values = parse(record).features.feature
            label = values[stored.label].int64_list.value[0]
            if not 0 <= label < 2**31:
                raise ValueError("a label below 0 or beyond all classes")
            labels.append(label)
            yield _decode_image(values[stored.image].bytes_list.value[0], stored.channels, called(row))

    stacked = stack_images(images(), len(span), name, size, gray, called)
    return stacked, np.array(labels, np.int32)


def _decode_image(encoded: bytes, channels: int, source: str) -> np.ndarray:
    mode = _PIL_MODES[channels]
    with opened_image(io.BytesIO(encoded), _IMAGE_FORMATS, source) as image:
        return np.asarray(image if image.mode == mode else image.convert(mode))


def _records(builder: Any, folder: Path, split: str, span: range) -> Iterator[bytes]:
    instructions = builder.info.splits[f"{split}[{span.start}:{span.stop}]"].file_instructions
    paths = [Path(instruction.filename) for instruction in instructions]
    if any(os.path.normpath(path.parent) != os.path.normpath(folder) for path in paths):
        raise ValueError("its records are in another folder")
    # Every record takes at least a byte, whatever the metadata declare.
    if len(span) > sum(path.stat().st_size for path in paths):
        raise ValueError(f"its metadata state {len(span)} records, more than its files can contain")
    kind = builder.info.file_format.value
    if kind not in ("tfrecord", "array_record"):
        raise ValueError(f"its records are {kind}, not array_record or tfrecord")
    for path, instruction in zip(paths, instructions, strict=True):
        read = _tfrecords if kind == "tfrecord" else _array_records
        yield from read(path, instruction.skip, instruction.take)


def _array_records(path: Path, skip: int, take: int) -> Iterator[bytes]:
    from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

    reader = array_record_module.ArrayRecordReader(str(path))
    try:
        for start in range(skip, skip + take, _CHUNK):
            yield from reader.read(start, min(start + _CHUNK, skip + take))
    finally:
        reader.close()


def _tfrecords(path: Path, skip: int, take: int) -> Iterator[bytes]:
    """The records of a TFRecord file: length (8 bytes), checksum (4), record, checksum (4), unverified."""
    with open_data(path) as file:
        for row in range(skip + take):
            header = file.read(12)
            length = int.from_bytes(header[:8], "little")
            record = file.read(min(length, file_size(file)) + 4)
            if len(header) < 12 or len(record) < length + 4:
                raise OSError(f"{path.name} is cut short or no TFRecord file at record {row}")
            if row >= skip:
                yield record[:-4]
