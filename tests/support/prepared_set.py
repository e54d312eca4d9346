"""Small TensorFlow Datasets sets, prepared as array_record without TensorFlow by TFDS's own writer."""

import io
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image


class Prepared(NamedTuple):
    """Where the set is (`folder` = data_dir/name[/config]/version) and what it holds, by split."""

    data_dir: Path
    folder: Path
    images: Mapping[str, list[np.ndarray]]
    labels: Mapping[str, np.ndarray]


def encode_png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_prepared(
    data_dir: Path,
    name: str = "tiny_digits",
    *,
    config: str | None = None,
    version: str = "1.0.0",
    features: Any = None,
    examples: Mapping[str, Sequence[Mapping[str, Any]]],
    supervised_keys: tuple[str, str] | None = ("image", "label"),
    per_shard: int = 10,
) -> Path:
    """Prepare `examples` (by split) as data_dir/name[/config]/version; `features` default to 8x8 gray images."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.dataset_info import DatasetIdentity

    folder = data_dir / name / (config or "") / version
    folder.mkdir(parents=True)
    identity = DatasetIdentity(
        name=name,
        version=tfds.core.Version(version),
        data_dir=str(folder),
        module_name="tests",
        config_name=config,
    )
    info = tfds.core.DatasetInfo(
        builder=identity, features=features or digit_features(), supervised_keys=supervised_keys
    )
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=per_shard, file_format="array_record")
    writer.initialize_splits(list(examples))
    writer.add_examples({split: list(records) for split, records in examples.items()})
    writer.close_all()
    return folder


def digit_features(shape: tuple[int | None, int | None, int] = (8, 8, 1)) -> Any:
    import tensorflow_datasets as tfds

    return tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=shape),
            "label": tfds.features.ClassLabel(names=["zero", "one", "two"]),
        }
    )


def random_images(shape: tuple[int, ...], sizes: Mapping[str, int], seed: int) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {split: list(rng.integers(0, 256, (n, *shape), np.uint8)) for split, n in sizes.items()}


def tiny_digits(data_dir: Path, seed: int = 0, **options: Any) -> Prepared:
    """25 train (three shards) and 7 test records of random 8x8 gray images in three classes."""
    images = random_images((8, 8), {"train": 25, "test": 7}, seed)
    rng = np.random.default_rng(seed + 1)
    labels = {split: rng.integers(0, 3, len(images[split])) for split in images}
    examples = {
        split: [
            {"image": encode_png(image), "label": int(label)}
            for image, label in zip(images[split], labels[split], strict=True)
        ]
        for split in images
    }
    folder = write_prepared(data_dir, examples=examples, **options)
    return Prepared(data_dir, folder, images, labels)


def rewrite(prepared: Prepared) -> Prepared:
    """The same set as tfrecord, without checksums, which nobody looks at."""
    from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

    for shard in sorted(prepared.folder.glob("*.array_record*")):
        reader = array_record_module.ArrayRecordReader(str(shard))
        records = reader.read_all()
        reader.close()
        shard.unlink()
        place = shard.with_name(shard.name.replace("array_record", "tfrecord"))
        place.write_bytes(b"".join(struct.pack("<Q4x", len(record)) + record + bytes(4) for record in records))
    info = prepared.folder / "dataset_info.json"
    info.write_text(info.read_text().replace('"array_record"', '"tfrecord"'))
    return prepared
