"""TensorFlow Datasets: where prepared sets are, and every record of them."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.odd import CANARY, FEATURE, HOSTILE_FEATURES
from support.prepared_set import digit_features, encode_png, random_images, rewrite, tiny_digits, write_prepared

from jaxaudit.data import Examples, load, prepare_images
from jaxaudit.errors import InputError


def read_folder(folder: Path, split: str = "", size: tuple[int, int] | None = None, gray: bool = True) -> Examples:
    """By the folder of its version."""
    return load(f"{folder}@{split}" if split else str(folder), image_size=size, gray=gray)


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
from jaxaudit.data import load
examples = load("tiny_digits@test+train[5:]")
assert "tensorflow" not in sys.modules and "jax" not in sys.modules
print(json.dumps([examples.inputs.tolist(), examples.labels.tolist(), examples.class_names, repr(examples)]))
"""


@pytest.mark.outer
def test_a_prepared_set_is_read_by_name_where_tensorflow_cannot_be_imported(prepared):
    path = os.pathsep.join(filter(None, sys.path))
    own = {"PYTHONPATH": path, "PYTHONWARNINGS": "error", "JAXAUDIT_DATA": str(prepared.data_dir)}
    command = [sys.executable, "-c", _READ_BY_NAME]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    images, labels, names, text = json.loads(done.stdout)
    for found, wanted in ((images, prepared.images), (labels, prepared.labels)):
        np.testing.assert_array_equal(found, [*wanted["test"], *wanted["train"][5:]])
    assert names == ["zero", "one", "two"]
    assert text == "Examples(tiny_digits@test+train[5:]: 27 records of shape (8, 8), 3 classes)"


@pytest.mark.parametrize("split", ["train[3:12]", "train[10:20]", "train[24:]", "test"])
def test_slices_are_those_of_tfds(prepared, split):
    import tensorflow_datasets as tfds

    builder: Any = tfds.builder_from_directory(prepared.folder)
    expected = builder.as_data_source(split)
    found = read_folder(prepared.folder, split)
    np.testing.assert_array_equal(found.inputs, [record["image"][..., 0] for record in expected])
    np.testing.assert_array_equal(found.labels, [record["label"] for record in expected])
    assert len(read_folder(prepared.folder, "")) == 25  # of train
    assert len(read_folder(prepared.folder, "all")) == 32


def test_records_of_tfrecord_files_are_read_too(prepared):
    """TFDS's default format, which TFDS itself reads only with TensorFlow."""
    rewrite(prepared)
    for start, stop in ((7, 23), (0, 25), (24, 25)):
        found = read_folder(prepared.folder, f"train[{start}:{stop}]")
        np.testing.assert_array_equal(found.inputs, prepared.images["train"][start:stop])
        np.testing.assert_array_equal(found.labels, prepared.labels["train"][start:stop])


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, (500).to_bytes(8, "little") + b"\0" * 20])
def test_damaged_tfrecords_are_named(prepared, content):
    next(rewrite(prepared).folder.glob("*-test.tfrecord*")).write_bytes(content)
    with pytest.raises(InputError, match=r"the prepared set in .* cannot be read .*; if it is dama"):
        read_folder(prepared.folder, "test")


@pytest.mark.parametrize("features", [*HOSTILE_FEATURES, {"pythonClass": CANARY}, json.loads("[" * 80 + "]" * 80)])
@pytest.mark.parametrize("place", ["features.json", "dataset_info.json"])
def test_a_data_file_does_not_choose_the_code_that_runs(prepared, tmp_path, monkeypatch, features, place):
    (tmp_path / "fuzz_canary.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    usual = json.loads((prepared.folder / place).read_text())
    if place == "features.json":
        # Alone, in place of the image, and within strings, which TFDS parses again.
        image = json.loads(json.dumps(usual))
        image["featuresDict"]["features"]["image"] = features
        tried = [features, image, usual | {"jsonFeature": {"json": json.dumps({"image": features})}}]
    else:
        tried = [usual | {"features": features, "moduleName": "fuzz_canary"}]
    for wrong in tried:
        (prepared.folder / place).write_text(json.dumps(wrong))
        # What no name is asked of may say anything; what is no message of protobuf is damaged.
        with contextlib.suppress(InputError):
            found = read_folder(prepared.folder, "test")
            np.testing.assert_array_equal(found.inputs, prepared.images["test"])
    assert "fuzz_canary" not in sys.modules


def test_a_feature_of_another_package_is_no_image(prepared):
    name = f"my.{FEATURE}image_feature.Image"
    text = (prepared.folder / "features.json").read_text()
    (prepared.folder / "features.json").write_text(text.replace(f"{FEATURE}image_feature.Image", name))
    with pytest.raises(InputError, match=f"one image and one class label are needed; it has image .{name}"):
        read_folder(prepared.folder, "test")


def test_the_metadata_that_are_checked_are_those_that_are_used(prepared, monkeypatch):
    """Each file is read once by what makes objects of its names."""
    import tensorflow_datasets as tfds

    monkeypatch.setattr(
        tfds.features.FeatureConnector, "from_config", lambda *_, **__: pytest.fail("features.json is read again")
    )
    assert len(read_folder(prepared.folder, "test")) == 7


@pytest.mark.parametrize("kind", ["dangling", "circle", "pipe", "names", "huge"])
def test_what_lies_in_the_folder_is_looked_at_first(prepared, kind):
    more, names = prepared.folder / "more", prepared.folder / "label.labels.txt"
    if kind in ("dangling", "circle"):
        more.symlink_to("nowhere" if kind == "dangling" else "more")
    elif kind in ("pipe", "names"):
        names.unlink()
        os.mkfifo(names if kind == "names" else more)
    else:
        os.truncate(prepared.folder / "features.json", 2**40)
    with pytest.raises(InputError):
        read_folder(prepared.folder, "test")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        *(("dataset_info.json", '"7"', f'"{count}"') for count in (700000000, 7 * 10**18, -7, 8)),
        ("dataset_info.json", "{DATASET}-{SPLIT}", "../{DATASET}-{SPLIT}"),
        ("dataset_info.json", "{DATASET}-{SPLIT}", "/etc/{DATASET}-{SPLIT}"),
        ("features.json", '"3"', '"3000000000"'),
    ],
)
def test_promises_of_the_metadata_are_not_believed(prepared, file, old, new):
    path = prepared.folder / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match="classes" if file == "features.json" else "prepared set|selects none"):
        read_folder(prepared.folder, "test")


def test_images_of_differing_sizes_are_refused(tmp_path):
    records = [{"image": encode_png(np.zeros(size, np.uint8)), "label": 0} for size in [(8, 8), (8, 8), (8, 9)]]
    folder = write_prepared(tmp_path, examples={"train": records}, features=digit_features((None, None, 1)))
    with pytest.raises(
        InputError, match=r"record 2: is 8x9 pixels of uint8 but .*record 0 is 8x8 of uint8; .*`image_size`"
    ):
        read_folder(folder, "")


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_differing_sizes_are_brought_to_one(tmp_path, channels):
    shapes = [(8, 8), (8, 8), (8, 9), (30, 5)]
    images = [
        random_images((*shape, 3)[: 2 + channels // 2], {"train": 1}, k)["train"][0] for k, shape in enumerate(shapes)
    ]
    records = [{"image": encode_png(image), "label": 0} for image in images]
    folder = write_prepared(tmp_path, examples={"train": records}, features=digit_features((None, None, channels)))
    for size, gray in [((6, 4), True), ((7, 7), True), ((6, 4), False)]:
        found = read_folder(folder, "", size, gray).inputs
        for image, row in zip(images, found, strict=True):
            alone = Examples(image[None], np.zeros(1, np.int32), ("a",), "alone")
            np.testing.assert_array_equal(row, prepare_images(alone, size, gray).inputs[0])


def test_supervised_keys_choose_among_several(tmp_path):
    """Without them, the only image and the only class are meant."""
    import tensorflow_datasets as tfds

    def read(name, features, keys):
        values = {"image": encode_png(np.zeros((8, 8), np.uint8)), "label": 2, "coarse": 1, "id": 0}
        records = [{key: values[key] for key in features}]
        features = tfds.features.FeaturesDict(features)
        folder = write_prepared(tmp_path, name, examples={"train": records}, features=features, supervised_keys=keys)
        return read_folder(folder, "")

    usual = dict(digit_features())
    several = usual | {"coarse": tfds.features.ClassLabel(num_classes=3)}
    found = read("two", several, ("image", "coarse"))
    assert (found.labels.tolist(), found.class_names) == ([1], ("0", "1", "2"))
    assert read("one", usual, None).labels.tolist() == [2]
    for name, features in (("open", several), ("unlabelled", {"image": usual["image"], "id": np.int64})):
        with pytest.raises(InputError, match="one image and one class"):
            read(name, features, None)


def test_the_newest_version_is_found_and_an_older_one_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXAUDIT_DATA", str(tmp_path))
    older = tiny_digits(tmp_path, version="1.9.0")
    newer = tiny_digits(tmp_path, version="1.10.0")
    for name, prepared in (("tiny_digits", newer), ("tiny_digits:1.9.0", older)):
        np.testing.assert_array_equal(load(f"{name}@test").inputs, prepared.images["test"])
    for name in ("tiny_digits:2.0.0", "tiny_digits/letters", "tiny"):
        with pytest.raises(InputError):
            load(name)


def test_which_config_is_meant(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXAUDIT_DATA", str(tmp_path))
    small = tiny_digits(tmp_path, config="small")
    np.testing.assert_array_equal(load("tiny_digits@test").inputs, small.images["test"])
    large = tiny_digits(tmp_path, seed=3, config="large")
    found = load("tiny_digits/large:1.0.0@test")
    np.testing.assert_array_equal(found.inputs, large.images["test"])
    with pytest.raises(InputError, match="several configs; name one: tiny_digits/large, tiny_digits/small"):
        load("tiny_digits")
