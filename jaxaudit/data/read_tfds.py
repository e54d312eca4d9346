"""Sets that TensorFlow Datasets has prepared, read without TensorFlow."""

import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.data.cache import cached_arrays
from jaxaudit.data.examples import Examples
from jaxaudit.data.selection import choose_parts
from jaxaudit.data.stacking import join_images, stack_images
from jaxaudit.errors import InputError

_PIL_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "GIF")  # those TFDS stores
_CLASS_KEYS = ("pythonClassName", "python_class_name", "type")  # the last is of sets prepared before 2022
_CHUNK = 1000
_LONGEST_RECORD = 1 << 28


class ImageFeatures(NamedTuple):
    """Which feature of a set holds the image and which the class."""

    image: str
    label: str


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


def read_prepared(
    folder: Path, split: str | None, name: str, size: tuple[int, int] | None = None, gray: bool = True
) -> Examples:
    """The records of a prepared set in `folder`, without TensorFlow.

    Args:
        folder: one version of a set: its metadata and record files (array_record, parquet or tfrecord).
        split: what to read, in the syntax of `selection.parse_split`; None is the only split, else `train`.
        name: what to call the result.
        size: (height, width) to bring images to that differ in size, as `prepare_images` does; None refuses them.
        gray: as for `prepare_images`, where sizes differ.

    Returns:
        images as stored, `uint8[n, height, width, channels]`, one-channel images as `[n, height, width]`, in
        the order of the record files; where sizes differ, `float32[n, *size, channels]` in [0, 1]. Class names are
        those of the set. Every part is decoded once for each `size` and then cached. Memory: the result and 1,000
        encoded images.

    Raises:
        InputError: not a set of image classification, no such split, images of several sizes and no `size`, damaged
            files.
    """
    builder = _open(folder, name)
    info = builder.info
    keys = image_features(info.features, info.supervised_keys, name)
    available = tuple(info.splits)
    parts = choose_parts(split, available, name)
    pieces = []
    for part in parts:
        span = part.span(info.splits[part.split].num_examples, name)
        key = f"{info.full_name} {part.split} {span.start}:{span.stop} {keys} {size} {gray} {_fingerprint(folder)}"
        arrays = cached_arrays(key, lambda p=part, s=span: _decode(builder, keys, p.split, s, name, size, gray))
        label = info.features[keys.label]
        class_names = tuple(label.names or map(str, range(label.num_classes)))
        pieces.append(Examples(arrays["images"], arrays["labels"], class_names, name))
    return join_images(pieces, name, size, gray)


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


def _decode(
    builder: Any, keys: ImageFeatures, split: str, span: range, name: str, size: tuple[int, int] | None, gray: bool
) -> dict[str, np.ndarray]:
    # Six times faster on MNIST than asking TFDS for decoded examples; threads make it slower.
    from tensorflow_datasets.proto import tf_example_pb2

    parse = tf_example_pb2.Example.FromString  # pyright: ignore[reportAttributeAccessIssue]
    feature = builder.info.features[keys.image]
    labels = np.empty(len(span), np.int32)

    def images() -> Iterator[np.ndarray]:
        for row, record in enumerate(_records(builder, split, span)):
            values = parse(record).features.feature
            labels[row] = values[keys.label].int64_list.value[0]
            yield _decode_image(values[keys.image].bytes_list.value[0], feature)

    def refuse(row: int, shape: tuple[int, ...], first: tuple[int, ...]) -> InputError:
        return InputError(
            f"{name}: images differ in size ({_size(first)} and, at record {span[row]}, {_size(shape)})"
            "; an audit needs one size: bring them to it (--image-size 28x28)."
        )

    try:
        stacked = stack_images(images(), len(span), name, size, gray, refuse)
    except InputError:
        raise
    except Exception as error:  # array_record, protobuf and PIL each raise their own kinds on damaged files
        raise _unreadable(name, builder.data_dir, error) from error
    return {"images": stacked, "labels": labels}


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape[:2]))


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
