"""Sets that TensorFlow Datasets has prepared, read without TensorFlow."""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.data.cache import cached_arrays
from jaxaudit.data.examples import Examples, concatenate
from jaxaudit.data.selection import choose_parts
from jaxaudit.errors import InputError

_NAME = re.compile(r"(?P<base>\w+)(?:/(?P<config>[\w\-.+]+))?(?::(?P<version>\d+\.\d+\.\d+))?", re.ASCII)
_LONGEST_NAME = 200  # a folder's cannot have more than 255 bytes
_PIL_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "GIF")  # those TFDS stores
_CLASS_KEYS = ("pythonClassName", "python_class_name", "type")  # the last is of sets prepared before 2022
_CHUNK = 1000
_LONGEST_RECORD = 1 << 28


class SetName(NamedTuple):
    """A TFDS name: `base[/config][:version]`."""

    base: str
    config: str | None
    version: str | None


class ImageFeatures(NamedTuple):
    """Which feature of a set holds the image and which the class."""

    image: str
    label: str


def parse_set_name(name: str) -> SetName | None:
    """`name` as a TFDS name, or None where it cannot be one.

    >>> parse_set_name("emnist/letters:3.1.0")
    SetName(base='emnist', config='letters', version='3.1.0')
    """
    match = _NAME.fullmatch(name) if len(name) <= _LONGEST_NAME else None
    return SetName(**match.groupdict()) if match else None


def data_folder(data_dir: Path | None) -> Path | None:
    """The data directory: `data_dir`, else `$JAXAUDIT_DATA`, else none."""
    chosen = data_dir or os.environ.get("JAXAUDIT_DATA")
    return Path(chosen).expanduser() if chosen else None


def set_folders(data_dir: Path | None) -> tuple[Path, ...]:
    """Where prepared sets are looked for, in this order.

    The data directory if there is one, `$TFDS_DATA_DIR`, `~/tensorflow_datasets`.
    """
    candidates = [data_folder(data_dir), os.environ.get("TFDS_DATA_DIR"), Path("~/tensorflow_datasets")]
    return tuple(dict.fromkeys(Path(folder).expanduser() for folder in candidates if folder))


def find_prepared(name: SetName, folders: tuple[Path, ...]) -> Path | None:
    """The folder of the prepared set, in the first of `folders` that has it.

    The newest version unless one is named. Where no config is named: the default one that TFDS noted on disk,
    or the only one.

    Raises:
        InputError: several configs are prepared and it is not known which is meant.
    """
    for folder in folders:
        root = folder / name.base
        if name.config is not None:
            root = root / name.config
        elif not _versions(root):
            configs = sorted(path.name for path in _subfolders(root) if _versions(path))
            if default := _default_config(root):
                configs = [default] if default in configs else []
            if len(configs) > 1:
                raise InputError(
                    f"{name.base} is prepared in {folder} with several configs; name one: "
                    + ", ".join(f"{name.base}/{config}" for config in configs)
                )
            if configs:
                root = root / configs[0]
        versions = _versions(root)
        if name.version is not None:
            versions = [version for version in versions if version.name == name.version]
        if versions:
            return versions[-1]
    return None


def is_prepared_folder(path: Path) -> bool:
    """Whether `path` is the folder of one version of a prepared set."""
    return (path / "dataset_info.json").is_file() and (path / "features.json").is_file()


def _subfolders(path: Path) -> list[Path]:
    return [child for child in path.iterdir() if child.is_dir()] if path.is_dir() else []


def _versions(path: Path) -> list[Path]:
    named = [child for child in _subfolders(path) if re.fullmatch(r"\d+\.\d+\.\d+", child.name)]
    return sorted(filter(is_prepared_folder, named), key=lambda child: [int(part) for part in child.name.split(".")])


def _default_config(root: Path) -> str | None:
    try:
        return json.loads((root / ".config" / "metadata.json").read_text()).get("default_config_name")
    except (OSError, ValueError, AttributeError):
        return None


def image_features(features: Any, supervised_keys: Any, name: str) -> ImageFeatures:
    """Which features hold the image and the class: the supervised keys, else the only image and class.

    Raises:
        InputError: the set is not one of image classification.
    """
    import tensorflow_datasets as tfds

    if isinstance(features, tfds.features.FeaturesDict):
        images = [key for key, feature in features.items() if type(feature) is tfds.features.Image]
        labels = [key for key, feature in features.items() if type(feature) is tfds.features.ClassLabel]
        if isinstance(supervised_keys, tuple) and len(supervised_keys) == 2:
            image, label = supervised_keys
            if image in images and label in labels:
                return ImageFeatures(image, label)
        if len(images) == 1 and len(labels) == 1:
            return ImageFeatures(images[0], labels[0])
        found = ", ".join(f"{key} ({type(feature).__name__})" for key, feature in sorted(features.items()))
    else:
        found = type(features).__name__
    raise InputError(
        f"{name} is no image-classification set: an audit needs one image and one class label, this one has {found}."
    )


def read_prepared(folder: Path, split: str | None, name: str) -> Examples:
    """The records of a prepared set in `folder`, without TensorFlow.

    Args:
        folder: one version of a set: its metadata and record files (array_record, parquet or tfrecord).
        split: what to read, in the syntax of `selection.parse_split`; None is the only split, else `train`.
        name: what to call the result.

    Returns:
        images as stored, `uint8[n, height, width, channels]`, one-channel images as `[n, height, width]`, in
        the order of the record files; class names are those of the set. Every part is decoded once and then
        cached. Memory: the result and 1,000 encoded images.

    Raises:
        InputError: not a set of image classification, no such split, images of several sizes, damaged files.
    """
    builder = _open(folder, name)
    info = builder.info
    keys = image_features(info.features, info.supervised_keys, name)
    available = tuple(info.splits)
    parts = choose_parts(split, available, name)
    pieces = []
    for part in parts:
        span = part.span(info.splits[part.split].num_examples, name)
        key = f"{info.full_name} {part.split} {span.start}:{span.stop} {keys} {_fingerprint(folder)}"
        arrays = cached_arrays(key, lambda p=part, s=span: _decode(builder, keys, p.split, s, name))
        label = info.features[keys.label]
        class_names = tuple(label.names or map(str, range(label.num_classes)))
        pieces.append(Examples(arrays["images"], arrays["labels"], class_names, name))
    return pieces[0] if len(pieces) == 1 else concatenate(pieces, name)


def _open(folder: Path, name: str) -> Any:
    """TFDS's builder of a prepared set.

    The metadata name the Python class of every feature, and TFDS imports its module. A data file must not choose
    which code runs, so only classes of TFDS itself are let through.
    """
    import tensorflow_datasets as tfds

    try:
        classes = list(_class_names(json.loads((folder / "features.json").read_text())))
        foreign = [each for each in classes if not each.startswith("tensorflow_datasets.")]
        if not foreign:
            return tfds.builder_from_directory(folder)
    except Exception as error:  # whatever damaged metadata make json, protobuf and TFDS raise
        raise _unreadable(name, folder, error) from error
    raise InputError(f"{name}: {folder} uses features of another package ({foreign[0]}), which are not loaded.")


def _class_names(features: Any) -> Iterator[str]:
    items = (
        features.items() if isinstance(features, dict) else enumerate(features if isinstance(features, list) else ())
    )
    for key, value in items:
        if key in _CLASS_KEYS and isinstance(value, str) and "." in value:
            yield value
        yield from _class_names(value)


def _unreadable(name: str, folder: str | Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:200]
    return InputError(
        f"{name}: the prepared set in {folder} cannot be read ({type(error).__name__}: {reason}); if it is damaged, "
        "delete it and prepare it again."
    )


def _fingerprint(folder: Path) -> str:
    """A digest that changes when a set is prepared again: of its metadata, and every file's size and time."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.iterdir()):
        status = path.stat()
        digest.update(f"{path.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    digest.update((folder / "dataset_info.json").read_bytes())
    return digest.hexdigest()


def _decode(builder: Any, keys: ImageFeatures, split: str, span: range, name: str) -> dict[str, np.ndarray]:
    # Six times faster on MNIST than asking TFDS for decoded examples; threads make it slower.
    from tensorflow_datasets.proto import tf_example_pb2

    parse = tf_example_pb2.Example.FromString  # pyright: ignore[reportAttributeAccessIssue]
    feature = builder.info.features[keys.image]
    images: np.ndarray | None = None
    labels = np.empty(len(span), np.int32)
    try:
        for row, record in enumerate(_records(builder, split, span)):
            values = parse(record).features.feature
            image = _decode_image(values[keys.image].bytes_list.value[0], feature)
            if images is None:
                images = np.empty((len(span), *image.shape), image.dtype)
            if image.shape != images.shape[1:]:
                raise InputError(
                    f"{name}: images differ in size ({_size(images[0])} and, at record {span[row]}, "
                    f"{_size(image)}); an audit needs one size: resize them into files first, or choose "
                    "another set."
                )
            images[row] = image
            labels[row] = values[keys.label].int64_list.value[0]
    except InputError:
        raise
    except Exception as error:  # array_record, protobuf and PIL each raise their own kinds on damaged files
        raise _unreadable(name, builder.data_dir, error) from error
    assert images is not None
    return {"images": images, "labels": labels}


def _size(image: np.ndarray) -> str:
    return "x".join(map(str, image.shape))


def _decode_image(encoded: bytes, feature: Any) -> np.ndarray:
    from PIL import Image

    channels = feature.shape[-1]
    if feature.np_dtype == np.uint8 and channels in _PIL_MODES:
        with Image.open(io.BytesIO(encoded), formats=_IMAGE_FORMATS) as image:
            pixels = np.asarray(image if image.mode == _PIL_MODES[channels] else image.convert(_PIL_MODES[channels]))
    else:
        pixels = feature.decode_example_np(encoded)
    return pixels[..., 0] if pixels.ndim == 3 and pixels.shape[-1] == 1 else pixels


def _records(builder: Any, split: str, span: range) -> Iterator[bytes]:
    import tensorflow_datasets as tfds

    part = f"{split}[{span.start}:{span.stop}]"
    if builder.info.file_format.value == "tfrecord":
        yield from _tfrecords(builder.info.splits[part].file_instructions)
        return
    source = builder.as_data_source(part, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES)
    if len(source) != len(span):
        raise OSError(f"{len(source)} records where dataset_info.json promises {len(span)}")
    for start in range(0, len(span), _CHUNK):
        yield from source.__getitems__(range(start, min(start + _CHUNK, len(span))))


def _tfrecords(instructions: Any) -> Iterator[bytes]:
    """The records of TFRecord files: length (8 bytes), checksum (4), record, checksum (4), unverified."""
    for instruction in instructions:
        with open(instruction.filename, "rb") as file:
            for row in range(instruction.skip + instruction.take):
                header = file.read(12)
                length = int.from_bytes(header[:8], "little")
                if len(header) < 12 or length > _LONGEST_RECORD:
                    raise OSError(f"{instruction.filename} is cut short or no TFRecord file at record {row}")
                record = file.read(length + 4)
                if len(record) < length + 4:
                    raise OSError(f"{instruction.filename} is cut short at record {row}")
                if row >= instruction.skip:
                    yield record[:-4]


def known_names() -> tuple[str, ...]:
    """The names of the sets that the installed TensorFlow Datasets can prepare."""
    import tensorflow_datasets as tfds

    return tuple(tfds.list_builders(with_community_datasets=False))
