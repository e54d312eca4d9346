"""Reads the features of a prepared TensorFlow Datasets set from its metadata, without importing what they name.

TFDS itself imports the module of every class that `features.json` or `dataset_info.json` names, also of those within
strings that are JSON again. A data file must not choose which code runs: here names are compared, and nothing else.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxaudit.data.labels import MOST_CLASSES
from jaxaudit.data.paths import exists, open_data
from jaxaudit.errors import InputError

LARGEST_METADATA = 2**24
_CONTAINER, IMAGE, CLASS = "FeaturesDict", "Image", "ClassLabel"
_MODULES = {
    "tensor_feature": ("Tensor",),
    "feature": ("Tensor",),
    "audio_feature": ("Audio",),
    "image_feature": (IMAGE,),
    "bounding_boxes": ("BBoxFeature",),
    "class_label_feature": (CLASS,),
    "features_dict": (_CONTAINER,),
    "sequence_feature": ("Sequence",),
    "dataset_feature": ("Dataset",),
    "labeled_image": ("LabeledImage",),
    "scalar": ("Scalar",),
    "text_feature": ("Text",),
    "translation_feature": ("Translation", "TranslationVariableLanguages"),
    "video_feature": ("Video",),
}
KNOWN = {f"tensorflow_datasets.core.features.{module}.{name}": name for module in _MODULES for name in _MODULES[module]}
"""The classes of TFDS by the names that it writes, and what messages call them."""
_CLASS_KEYS = ("pythonClassName", "python_class_name", "type")  # the last is of sets prepared before 2022
_CONTENT_KEYS = {_CONTAINER: ("featuresDict", "features_dict"), IMAGE: ("image",), CLASS: ("classLabel", "class_label")}
_TEXT_KEYS = ("jsonFeature", "json_feature")
_DTYPES = ("uint8", "uint16", "float32")
_DEEPEST = 50


class StoredImage(NamedTuple):
    """How the images of a set are stored."""

    channels: int
    dtype: str


class ImageFeatures(NamedTuple):
    """Which feature of a set holds the image and which the class."""

    image: str
    label: str


def image_features(kinds: Mapping[str, str], supervised_keys: Any, name: str) -> ImageFeatures:
    """Which features hold the image and the class: the supervised keys, else the only image and class.

    Args:
        kinds: the name of each feature's class.

    Raises:
        InputError: the set is not one of image classification.
    """
    images = [key for key, kind in kinds.items() if kind == IMAGE]
    labels = [key for key, kind in kinds.items() if kind == CLASS]
    if isinstance(supervised_keys, tuple) and len(supervised_keys) == 2:
        image, label = supervised_keys
        if image in images and label in labels:
            return ImageFeatures(image, label)
    if len(images) == 1 and len(labels) == 1:
        return ImageFeatures(images[0], labels[0])
    found = ", ".join(f"{key} ({kind})" for key, kind in sorted(kinds.items())[:20])
    raise InputError(
        f"{name} is not an image-classification set: one image and one class label are needed; it has {found}."
    )


def read_metadata(path: Path) -> bytes:
    """A metadata file's bytes, read once and bounded.

    Raises:
        InputError: when it cannot be read.
        ValueError: when it is larger than any set's.
    """
    with open_data(path) as file:
        data = file.read(LARGEST_METADATA + 1)
    if len(data) > LARGEST_METADATA:
        raise ValueError(f"{path.name} has more than {LARGEST_METADATA / 2**20:.0f} MiB")
    return data


def read_features(folder: Path, name: str) -> dict[str, Any]:
    """The features in a set's `features.json`, as they stand there.

    Raises:
        InputError: when it names a class that is not of TFDS at any depth, or holds JSON within a string.
        Exception: of any kind when it is damaged, as from the other functions here: call them within `parsing`.
    """
    root = json.loads(read_metadata(folder / "features.json"))
    _refuse_foreign(root, f"{name}: {folder}")
    if kind_of(root) != _CONTAINER:
        raise TypeError(f"its features are of the class {kind_of(root)}")
    content = _content(root, _CONTAINER)
    return {str(key): node for key, node in content.get("features", content).items()}


def kind_of(node: Any) -> str:
    """What the class of a feature is called."""
    return KNOWN[next(node[key] for key in _CLASS_KEYS if key in node)]


def stored_image(node: Any) -> StoredImage:
    """How the images of a feature are stored."""
    content = _content(node, IMAGE)
    shape = content.get("shape", {})
    # As a message of protobuf, whose numbers are texts, and as the list it was before.
    dimensions = shape.get("dimensions", []) if isinstance(shape, dict) else shape
    dtype = content["dtype"]
    if len(dimensions) != 3 or dtype not in _DTYPES:
        raise ValueError(f"images of {len(dimensions)} dimensions and type {str(dtype)[:20]}")
    return StoredImage(int(dimensions[2]), dtype)


def class_names(node: Any, folder: Path, key: str) -> tuple[str, ...]:
    """The names of the classes of a feature, numbers where there are none."""
    content = _content(node, CLASS)
    count = int(content.get("numClasses") or content.get("num_classes") or 0)
    path = folder / f"{key.replace('/', '.')}.labels.txt"
    lines = read_metadata(path).decode().split("\n") if exists(path) else []
    names = tuple(line.strip() for line in lines if line.strip())
    if not 0 <= count <= MOST_CLASSES or (names and len(names) != count):
        raise ValueError(f"{len(names)} names of {count} classes")
    return names or tuple(map(str, range(count)))


def _content(node: Any, kind: str) -> dict[str, Any]:
    content = node["content"] if "type" in node else next(node[key] for key in _CONTENT_KEYS[kind] if key in node)
    if not isinstance(content, dict):
        raise TypeError(f"the content of {kind} is not a JSON object")
    return content


def _refuse_foreign(node: Any, source: str, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise ValueError("features within features without end")
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if key in _CLASS_KEYS and isinstance(value, str) and value not in KNOWN:
            raise InputError(f"{source} uses features of another package ({value[:80]}), which are not loaded.")
        # TFDS would parse these, and import what they name.
        if key in _TEXT_KEYS or (key == "content" and isinstance(value, str)):
            raise InputError(f"{source} has features inside a text, which are not read; prepare the set again.")
        _refuse_foreign(value, source, depth + 1)
