"""Reading prepared TensorFlow Datasets sets: every record, in order, without TensorFlow."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.prepared_set import digit_features, encode_png, random_images, tiny_digits, write_prepared

from jaxaudit.data.examples import Examples
from jaxaudit.data.images import prepare_images
from jaxaudit.data.tfds.features import KNOWN
from jaxaudit.data.tfds.read import read_prepared
from jaxaudit.errors import InputError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))
    for variable in ("JAXAUDIT_DATA", "TFDS_DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def prepared(tmp_path):
    return tiny_digits(tmp_path / "data")


_READ_BY_NAME = """
import importlib.machinery, json, sys
class NoTensorFlow:  # looks installed, so that nothing avoids it for that reason, but importing it fails
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "tensorflow" else None
    def create_module(self, spec):
        raise ImportError("TensorFlow must not be imported to read")
    def exec_module(self, module):
        pass
sys.meta_path.insert(0, NoTensorFlow())
from pathlib import Path
from jaxaudit.data import load
examples = load("tiny_digits@test+train[5:]", data_dir=Path(sys.argv[1]))
assert "tensorflow" not in sys.modules and "jax" not in sys.modules
print(json.dumps([examples.inputs.tolist(), examples.labels.tolist(), examples.class_names, repr(examples)]))
"""


@pytest.mark.outer
def test_a_prepared_set_is_read_by_name_where_tensorflow_cannot_be_imported(prepared):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONWARNINGS": "error"}
    for _ in range(2):  # decoded, then from the cache
        done = subprocess.run(
            [sys.executable, "-c", _READ_BY_NAME, str(prepared.data_dir)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        images, labels, names, text = json.loads(done.stdout)  # nothing else on stdout
        np.testing.assert_array_equal(images, [*prepared.images["test"], *prepared.images["train"][5:]])
        np.testing.assert_array_equal(labels, [*prepared.labels["test"], *prepared.labels["train"][5:]])
        assert names == ["zero", "one", "two"]
        assert text == "Examples(tiny_digits@test+train[5:]: 27 records of shape (8, 8), 3 classes)"


@pytest.mark.parametrize(
    "split", ["train[3:12]", "train[10:20]", "train[-1:]", "train[:10%]", "train[33%:66%]", "test"]
)
def test_slices_are_those_of_tfds(prepared, split):
    import tensorflow_datasets as tfds

    builder: Any = tfds.builder_from_directory(prepared.folder)
    expected = builder.as_data_source(split)
    found = read_prepared(prepared.folder, split, "tiny")
    np.testing.assert_array_equal(found.inputs, [record["image"][..., 0] for record in expected])
    np.testing.assert_array_equal(found.labels, [record["label"] for record in expected])


def test_without_a_split_train_is_read(prepared):
    assert len(read_prepared(prepared.folder, None, "tiny")) == 25
    assert len(read_prepared(prepared.folder, "all", "tiny")) == 32


def test_the_cache_is_used_until_the_set_is_prepared_again(prepared, monkeypatch):
    from jaxaudit.data.tfds import read as module

    first = read_prepared(prepared.folder, "train", "tiny")
    with monkeypatch.context() as patch:
        patch.setattr(module, "_decode", lambda *_: pytest.fail("decoded again"))
        np.testing.assert_array_equal(read_prepared(prepared.folder, "train", "tiny").inputs, first.inputs)
    shutil.rmtree(prepared.data_dir)
    again = tiny_digits(prepared.data_dir, seed=9)
    np.testing.assert_array_equal(read_prepared(again.folder, "train", "tiny").inputs, again.images["train"])


def _write_tfrecords(path: Path, records: list[bytes]) -> None:
    with path.open("wb") as file:
        for record in records:
            file.write(len(record).to_bytes(8, "little") + b"\0" * 4 + record + b"\0" * 4)


@pytest.fixture
def as_tfrecord(prepared):
    """The same set in TFDS's default format, which TFDS itself reads only with TensorFlow."""
    import tensorflow_datasets as tfds

    builder: Any = tfds.builder_from_directory(prepared.folder)
    for split in ("train", "test"):
        source = builder.as_data_source(split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES)
        shards = sorted(prepared.folder.glob(f"*-{split}.array_record*"))
        lengths = builder.info.splits[split].shard_lengths
        start = 0
        for shard, length in zip(shards, lengths, strict=True):
            records = [source[row] for row in range(start, start + length)]
            _write_tfrecords(shard.with_name(shard.name.replace("array_record", "tfrecord")), records)
            shard.unlink()
            start += length
    info = prepared.folder / "dataset_info.json"
    info.write_text(info.read_text().replace('"array_record"', '"tfrecord"'))
    return prepared


def test_tfrecords_are_read_too(as_tfrecord):
    found = read_prepared(as_tfrecord.folder, "train[7:23]", "tiny")
    np.testing.assert_array_equal(found.inputs, as_tfrecord.images["train"][7:23])
    np.testing.assert_array_equal(found.labels, as_tfrecord.labels["train"][7:23])


@pytest.fixture
def as_parquet(prepared):
    """The same set in Parquet."""
    import pyarrow
    import tensorflow_datasets as tfds
    from pyarrow import parquet

    builder: Any = tfds.builder_from_directory(prepared.folder)
    for split in ("train", "test"):
        source = builder.as_data_source(split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES)
        start = 0
        shards = sorted(prepared.folder.glob(f"*-{split}.array_record*"))
        for shard, length in zip(shards, builder.info.splits[split].shard_lengths, strict=True):
            records = [source[row] for row in range(start, start + length)]
            table = pyarrow.table({"data": pyarrow.array(records, pyarrow.binary())})
            parquet.write_table(table, shard.with_name(shard.name.replace("array_record", "parquet")))
            shard.unlink()
            start += length
    info = prepared.folder / "dataset_info.json"
    info.write_text(info.read_text().replace('"array_record"', '"parquet"'))
    return prepared


def test_parquet_is_read_too(as_parquet):
    for start, stop in ((7, 23), (0, 25), (24, 25)):
        found = read_prepared(as_parquet.folder, f"train[{start}:{stop}]", "tiny")
        np.testing.assert_array_equal(found.inputs, as_parquet.images["train"][start:stop])


def test_equal_rows_of_parquet_are_no_more_than_promised(as_parquet):
    import pyarrow
    from pyarrow import parquet

    shard = next(as_parquet.folder.glob("*-test.parquet*"))
    for rows in (3, 10**7):
        codes = pyarrow.array(np.zeros(rows, np.int32))
        data = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array([b"x" * 1000]))
        parquet.write_table(pyarrow.table({"data": data}), shard)
        with pytest.raises(InputError):
            read_prepared(as_parquet.folder, "test", "tiny")


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, (500).to_bytes(8, "little") + b"\0" * 20])
def test_damaged_tfrecords_are_named(as_tfrecord, content):
    next(as_tfrecord.folder.glob("*-test.tfrecord*")).write_bytes(content)
    with pytest.raises(InputError, match=r"tiny: the prepared set in .* cannot be read .*; if it is dama"):
        read_prepared(as_tfrecord.folder, "test", "tiny")


def test_damaged_array_records_are_named(prepared):
    shard = next(prepared.folder.glob("*-test.array_record*"))
    shard.write_bytes(b"\0" * 200)
    with pytest.raises(InputError, match=r"cannot be read .*delete it and prepare it again"):
        read_prepared(prepared.folder, "test", "tiny")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
def test_a_file_beside_a_set_may_have_a_name_that_is_no_text(prepared):
    usual = read_prepared(prepared.folder, "test", "tiny_digits")
    (prepared.folder / os.fsdecode(b"\xff.json")).write_text("{}")
    np.testing.assert_array_equal(read_prepared(prepared.folder, "test", "tiny_digits").inputs, usual.inputs)


def test_a_missing_shard_is_named(prepared):
    next(prepared.folder.glob("*-test.array_record*")).unlink()
    with pytest.raises(InputError, match=r"cannot be read .*delete it and prepare it again"):
        read_prepared(prepared.folder, "test", "tiny")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("dataset_info.json", content) for content in ["", "{", "[]", '{"splits": 3}']),
        *(("features.json", content) for content in ["", "{", "[]", '{"featuresDict": 3}']),
    ],
)
def test_damaged_metadata_are_named(prepared, file, content):
    (prepared.folder / file).write_text(content)
    with pytest.raises(
        InputError, match=r"tiny: the prepared set in .* cannot be read .*delete it and prepare it again"
    ):
        read_prepared(prepared.folder, "test", "tiny")


CORE = "tensorflow_datasets.core.features."
CONTAINER = CORE + "features_dict.FeaturesDict"
EVIL = {"pythonClassName": "evil_features.Image", "image": {"dtype": "uint8", "shape": {"dimensions": ["8", "8", "1"]}}}


def _with_image(features: dict[str, Any], image: Any) -> dict[str, Any]:
    features["featuresDict"]["features"]["image"] = image
    return features


@pytest.mark.parametrize(
    "change",
    [
        *(
            lambda features, key=key: _with_image(features, {key: "evil_features.Image", "content": {}})
            for key in ("pythonClassName", "python_class_name", "type")
        ),
        lambda features: _with_image(features, {"type": "evil_features.Image", "content": json.dumps(EVIL)}),
        # Names that begin as TFDS's do.
        lambda features: _with_image(features, EVIL | {"pythonClassName": "tensorflow_datasets.x.evil_features.Image"}),
        lambda features: _with_image(features, EVIL | {"pythonClassName": "tensorflow_datasets_evil.Image"}),
        # JSON within strings, which TFDS parses again.
        lambda _: {"pythonClassName": CONTAINER, "jsonFeature": {"json": json.dumps({"image": EVIL})}},
        lambda features: features | {"jsonFeature": {"json": json.dumps({"image": EVIL})}},
        lambda features: {
            "type": CONTAINER,
            "proto_cls": "tensorflow_datasets.FeaturesDict",
            "content": json.dumps({"features": {"image": EVIL}}),
        },
        lambda features: _with_image(
            features, {"pythonClassName": CORE + "sequence_feature.Sequence", "sequence": {"feature": EVIL}}
        ),
        lambda features: _with_image(
            features, {"pythonClassName": CONTAINER, "featuresDict": {"features": {"a": {"b": [EVIL]}}}}
        ),
        lambda features: EVIL,
        lambda features: _with_image(features, {"pythonClass": "evil_features.Image"}),
        lambda features: json.loads("[" * 80 + "]" * 80),
    ],
)
@pytest.mark.parametrize("place", ["features.json", "dataset_info.json"])
def test_a_data_file_does_not_choose_the_code_that_runs(prepared, tmp_path, monkeypatch, change, place):
    (tmp_path / "evil_features.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    features = change(json.loads((prepared.folder / "features.json").read_text()))
    if place == "features.json":
        (prepared.folder / place).write_text(json.dumps(features))
        with pytest.raises(InputError, match="tiny"):
            read_prepared(prepared.folder, "test", "tiny")
    else:
        # Its features are not asked for, whatever they say; what is no message of protobuf is damaged.
        info = json.loads((prepared.folder / place).read_text())
        info |= {"features": features, "moduleName": "evil_features"}
        (prepared.folder / place).write_text(json.dumps(info))
        with contextlib.suppress(InputError):
            found = read_prepared(prepared.folder, "test", "tiny")
            np.testing.assert_array_equal(found.inputs, prepared.images["test"])
    assert "evil_features" not in sys.modules


def test_the_metadata_that_are_checked_are_those_that_are_used(prepared, monkeypatch):
    """Each file is read once by what makes objects of its names."""
    import tensorflow_datasets as tfds

    monkeypatch.setattr(
        tfds.features.FeatureConnector, "from_config", lambda *_, **__: pytest.fail("features.json is read again")
    )
    assert len(read_prepared(prepared.folder, "test", "tiny")) == 7


@pytest.mark.parametrize("legacy", ["message", "list"])
def test_sets_prepared_before_2022(prepared, legacy):
    image, label = CORE + "image_feature.Image", CORE + "class_label_feature.ClassLabel"
    if legacy == "list":
        content: dict[str, Any] = {
            "image": {"type": image, "content": {"shape": [8, 8, 1], "dtype": "uint8", "encoding_format": "png"}},
            "label": {"type": label, "content": {"num_classes": 3}},
        }
    else:
        shape = {"dimensions": ["8", "8", "1"]}
        content = {
            "features": {
                "image": {"pythonClassName": image, "image": {"shape": shape, "dtype": "uint8"}},
                "label": {"pythonClassName": label, "classLabel": {"numClasses": "3"}},
            }
        }
    (prepared.folder / "features.json").write_text(json.dumps({"type": CONTAINER, "content": content}))
    found = read_prepared(prepared.folder, "test", "tiny")
    np.testing.assert_array_equal(found.inputs, prepared.images["test"])
    assert found.class_names == ("zero", "one", "two")


def test_every_class_of_tfds_is_known():
    import tensorflow_datasets as tfds

    names = set(tfds.features.FeatureConnector._registered_features)
    assert {name for name in names if name.startswith("tensorflow_datasets.")} - {
        CORE + "top_level_feature.TopLevelFeature"
    } == set(KNOWN)


@pytest.mark.parametrize("kind", ["dangling", "circle", "pipe", "names", "huge"])
def test_what_lies_in_the_folder_is_looked_at_first(prepared, kind):
    if kind == "dangling":
        (prepared.folder / "more").symlink_to("nowhere")
    elif kind == "circle":
        (prepared.folder / "more").symlink_to("more")
    elif kind == "pipe":
        os.mkfifo(prepared.folder / "more")
    elif kind == "names":
        (prepared.folder / "label.labels.txt").unlink()
        os.mkfifo(prepared.folder / "label.labels.txt")
    else:
        with (prepared.folder / "features.json").open("wb") as file:
            file.truncate(2**40)
    with pytest.raises(InputError):
        read_prepared(prepared.folder, "test", "tiny")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"7"', '"700000000"'),
        ('"7"', '"7000000000000000000"'),
        ("{DATASET}-{SPLIT}", "../{DATASET}-{SPLIT}"),
        ("{DATASET}-{SPLIT}", "/etc/{DATASET}-{SPLIT}"),
        ('"7"', '"-7"'),
        ('"7"', '"8"'),
    ],
)
def test_promises_of_the_metadata_are_not_believed(prepared, old, new):
    path = prepared.folder / "dataset_info.json"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError):
        read_prepared(prepared.folder, "test", "tiny")


def test_very_many_classes(prepared):
    path = prepared.folder / "features.json"
    path.write_text(path.read_text().replace('"3"', '"3000000000"'))
    with pytest.raises(InputError, match="classes"):
        read_prepared(prepared.folder, "test", "tiny")


@pytest.mark.parametrize("channels", [3, 4])
def test_colour_images_keep_their_channels(tmp_path, channels):
    images = random_images((5, 7, channels), {"train": 4}, seed=3)["train"]
    records = [{"image": encode_png(image), "label": 1} for image in images]
    folder = write_prepared(tmp_path, examples={"train": records}, features=digit_features((None, None, channels)))
    np.testing.assert_array_equal(read_prepared(folder, None, "colour").inputs, images)


def test_images_of_differing_sizes_are_refused(tmp_path):
    records = [{"image": encode_png(np.zeros(size, np.uint8)), "label": 0} for size in [(8, 8), (8, 8), (8, 9)]]
    folder = write_prepared(tmp_path, examples={"train": records}, features=digit_features((None, None, 1)))
    with pytest.raises(InputError, match=r"images differ in size \(8x8 and, at record 2, 8x9\)"):
        read_prepared(folder, None, "mixed")


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_differing_sizes_are_brought_to_one(tmp_path, channels):
    shapes = [(8, 8), (8, 8), (8, 9), (30, 5)]
    images = [
        random_images((*shape, 3)[: 2 + channels // 2], {"train": 1}, k)["train"][0] for k, shape in enumerate(shapes)
    ]
    records = [{"image": encode_png(image), "label": 0} for image in images]
    folder = write_prepared(tmp_path, examples={"train": records}, features=digit_features((None, None, channels)))
    for size, gray in [((6, 4), True), ((7, 7), True), ((6, 4), False)]:  # each cached apart
        found = read_prepared(folder, None, "mixed", size, gray).inputs
        for image, row in zip(images, found, strict=True):
            alone = Examples(image[None], np.zeros(1, np.int32), ("a",), "alone")
            np.testing.assert_array_equal(row, prepare_images(alone, size, gray).inputs[0])
    assert read_prepared(folder, "train[:2]", "mixed", (6, 4)).inputs.dtype == np.uint8
    joined = read_prepared(folder, "train[:2]+train[2:]", "mixed", (6, 4)).inputs
    np.testing.assert_array_equal(joined, read_prepared(folder, None, "mixed", (6, 4)).inputs)


def test_without_supervised_keys_the_only_image_and_class_are_meant(tmp_path):
    prepared = tiny_digits(tmp_path, supervised_keys=None)
    np.testing.assert_array_equal(read_prepared(prepared.folder, "test", "tiny").labels, prepared.labels["test"])


def test_supervised_keys_choose_among_several(tmp_path):
    import tensorflow_datasets as tfds

    label = tfds.features.ClassLabel(num_classes=3)
    features = tfds.features.FeaturesDict({**digit_features(), "coarse": label})
    image = np.arange(64, dtype=np.uint8).reshape(8, 8)
    records = [{"image": encode_png(image), "label": 2, "coarse": 1}]
    chosen = write_prepared(
        tmp_path, examples={"train": records}, features=features, supervised_keys=("image", "coarse")
    )
    found = read_prepared(chosen, None, "two labels")
    assert found.labels.tolist() == [1]
    assert found.class_names == ("0", "1", "2")
    open_choice = write_prepared(
        tmp_path, "other", examples={"train": records}, features=features, supervised_keys=None
    )
    with pytest.raises(InputError, match="image-classification set"):
        read_prepared(open_choice, None, "two labels")


def test_a_set_without_labels_is_refused(tmp_path):
    import tensorflow_datasets as tfds

    features = tfds.features.FeaturesDict({"image": tfds.features.Image(shape=(8, 8, 1)), "id": np.int64})
    records = [{"image": encode_png(np.zeros((8, 8), np.uint8)), "id": 0}]
    folder = write_prepared(tmp_path, examples={"train": records}, features=features, supervised_keys=None)
    with pytest.raises(InputError, match="one image and one class"):
        read_prepared(folder, None, "unlabelled")
