"""Sets that TensorFlow Datasets has prepared, read without TensorFlow."""

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxaudit.data.cache import cached_arrays
from jaxaudit.data.examples import Examples
from jaxaudit.data.formats.decoding import opened_image
from jaxaudit.data.formats.parsing import parsed, parsing, quietly
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import file_size, open_data, regular_files
from jaxaudit.data.selection import choose_parts
from jaxaudit.data.stacking import join_images, stack_images
from jaxaudit.data.tfds.features import (
    ImageFeatures,
    StoredImage,
    class_names,
    image_features,
    kind_of,
    read_features,
    read_metadata,
    stored_image,
)
from jaxaudit.errors import InputError

_PIL_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "GIF")  # those TFDS stores
_CHUNK = 1000
_LONGEST_RECORD = 1 << 28
_DAMAGED = "if it is damaged, delete it and prepare it again."


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
    what, advice = f"{name}: the prepared set in {folder} cannot be read", _DAMAGED
    fingerprint = _fingerprint(folder)
    with parsing(what, advice):
        features = read_features(folder, name)
        builder = _open(folder)
        info = builder.info
        keys = image_features({key: kind_of(node) for key, node in features.items()}, info.supervised_keys, name)
        stored, names = stored_image(features[keys.image]), class_names(features[keys.label], folder, keys.label)
    parts = choose_parts(split, tuple(info.splits), name)
    pieces = []
    for part in parts:
        span = part.span(info.splits[part.split].num_examples, name)
        key = f"{info.full_name} {part.split} {span.start}:{span.stop} {keys} {size} {gray} {fingerprint}"

        def build(split: str = part.split, span: range = span) -> dict[str, np.ndarray]:
            with quietly():
                records = parsed(lambda: _parsed_records(builder, folder, split, span, keys), what, advice)
                return _decode(records, stored, span, name, size, gray)

        arrays = cached_arrays(key, build)
        pieces.append(Examples(arrays["images"], arrays["labels"], names, name))
    return join_images(pieces, name, size, gray)


def _open(folder: Path) -> Any:
    """TFDS's builder of a prepared set, with features from here, because it would import those on disk.

    Both files of metadata can name classes; each is read once, and what is not ours is taken out.
    """
    import tensorflow_datasets as tfds
    from google.protobuf import json_format
    from tensorflow_datasets.core import read_only_builder
    from tensorflow_datasets.core.proto import dataset_info_pb2

    text = read_metadata(folder / "dataset_info.json").decode()
    proto: Any = json_format.Parse(text, dataset_info_pb2.DatasetInfo())  # pyright: ignore[reportAttributeAccessIssue]
    proto.ClearField("module_name")
    proto.features.CopyFrom(tfds.features.FeaturesDict({"image": tfds.features.Image()}).to_proto())
    return read_only_builder.ReadOnlyBuilder(builder_dir=folder, info_proto=proto)


def _fingerprint(folder: Path) -> str:
    """A digest that changes when a set is prepared again: of its metadata, and every file's size and time."""
    digest = hashlib.blake2b(digest_size=16)
    for path, status in sorted(regular_files(folder)):
        # A name may be no text at all.
        digest.update(f"{path.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogatepass"))
    with open_data(folder / "dataset_info.json") as file:
        digest.update(file.read())
    return digest.hexdigest()


def _decode(
    records: Iterator[tuple[bytes, int]],
    stored: StoredImage,
    span: range,
    name: str,
    size: tuple[int, int] | None,
    gray: bool,
) -> dict[str, np.ndarray]:
    # As long as the records that come, not as the metadata promise.
    labels: list[int] = []

    def images() -> Iterator[np.ndarray]:
        for row, (encoded, label) in enumerate(records):
            labels.append(label)
            yield _decode_image(encoded, stored, f"{name}: record {span[row]}")

    def refuse(row: int, shape: tuple[int, ...], first: tuple[int, ...]) -> InputError:
        return InputError(
            f"{name}: images differ in size ({_size(first)} and, at record {span[row]}, {_size(shape)})"
            "; convert them to one size (--image-size 28x28)."
        )

    stacked = stack_images(images(), len(span), name, size, gray, refuse, MAX_BYTES)
    return {"images": stacked, "labels": np.array(labels, np.int32)}


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape[:2]))


def _decode_image(encoded: bytes, stored: StoredImage, source: str) -> np.ndarray:
    if stored.dtype == "uint8" and stored.channels in _PIL_MODES:
        mode = _PIL_MODES[stored.channels]
        with opened_image(io.BytesIO(encoded), _IMAGE_FORMATS, source) as image:
            pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    else:
        import tensorflow_datasets as tfds

        with parsing(f"{source} cannot be read", _DAMAGED):
            feature = tfds.features.Image(shape=(None, None, stored.channels), dtype=np.dtype(stored.dtype).type)
            pixels = np.asarray(feature.decode_example_np(encoded))
    return pixels[..., 0] if pixels.ndim == 3 and pixels.shape[-1] == 1 else pixels


def _parsed_records(
    builder: Any, folder: Path, split: str, span: range, keys: ImageFeatures
) -> Iterator[tuple[bytes, int]]:
    """The encoded image and the label of each record."""
    # Six times faster on MNIST than asking TFDS for decoded examples; threads make it slower.
    from tensorflow_datasets.proto import tf_example_pb2

    parse = tf_example_pb2.Example.FromString  # pyright: ignore[reportAttributeAccessIssue]
    for record in _records(builder, folder, split, span):
        values = parse(record).features.feature
        label = values[keys.label].int64_list.value[0]
        if not 0 <= label < 2**31:
            raise ValueError("a label below 0 or beyond all classes")
        yield values[keys.image].bytes_list.value[0], label


def _records(builder: Any, folder: Path, split: str, span: range) -> Iterator[bytes]:
    import tensorflow_datasets as tfds

    part = f"{split}[{span.start}:{span.stop}]"
    instructions = builder.info.splits[part].file_instructions
    paths = [Path(instruction.filename) for instruction in instructions]
    if any(os.path.normpath(path.parent) != os.path.normpath(folder) for path in paths):
        raise ValueError("its records are in another folder")
    # No record takes less than a byte, whatever the metadata promise.
    if len(span) > sum(path.stat().st_size for path in paths):
        raise ValueError(f"its metadata state {len(span)} records, more than its files can contain")
    kind = builder.info.file_format.value
    if kind != "array_record":
        read = _parquet_records if kind == "parquet" else _tfrecords
        for path, instruction in zip(paths, instructions, strict=True):
            yield from read(path, instruction.skip, instruction.take)
        return
    source = builder.as_data_source(part, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES)
    if len(source) != len(span):
        raise OSError(f"{len(source)} records where dataset_info.json promises {len(span)}")
    for start in range(0, len(span), _CHUNK):
        yield from source.__getitems__(range(start, min(start + _CHUNK, len(span))))


def _tfrecords(path: Path, skip: int, take: int) -> Iterator[bytes]:
    """The records of a TFRecord file: length (8 bytes), checksum (4), record, checksum (4), unverified."""
    with open_data(path) as file:
        longest = min(_LONGEST_RECORD, file_size(file))
        for row in range(skip + take):
            header = file.read(12)
            length = int.from_bytes(header[:8], "little")
            if len(header) < 12 or length > longest:
                raise OSError(f"{path.name} is cut short or no TFRecord file at record {row}")
            record = file.read(length + 4)
            if len(record) < length + 4:
                raise OSError(f"{path.name} is cut short at record {row}")
            if row >= skip:
                yield record[:-4]


def _parquet_records(path: Path, skip: int, take: int) -> Iterator[bytes]:
    """The records of a Parquet file, its first column; equal ones stay one in memory."""
    from pyarrow import parquet

    with open_data(path) as opened:
        schema = parquet.read_schema(opened)
    column = schema.names[0]
    with open_data(path) as opened, parquet.ParquetFile(opened, read_dictionary=[column]) as file:
        groups = [file.metadata.row_group(group).total_byte_size for group in range(file.metadata.num_row_groups)]
        if sum(groups) > MAX_BYTES or file.metadata.num_rows < skip + take:
            raise OSError(f"{path.name} has {file.metadata.num_rows} records in {sum(groups) / 2**30:.1f} GiB")
        row = 0
        for batch in file.iter_batches(_CHUNK, columns=[column]):
            for value in batch.column(0)[max(0, skip - row) : max(0, skip + take - row)]:
                yield value.as_py()
            row += len(batch)
