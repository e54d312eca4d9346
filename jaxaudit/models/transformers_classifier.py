"""Builds an image or text classifier of `transformers` from a configuration on disk, without downloads or foreign code.

What a configuration must not ask for is in `pretrained`.
"""

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from jaxaudit.data.formats.parsing import quietly
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import read_small
from jaxaudit.data.weights.weights import Weights
from jaxaudit.errors import InputError
from jaxaudit.models import pretrained

CLASSIFIERS = {
    "AutoModelForImageClassification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
}
OTHER = (
    "no image or text classifier; log-likelihoods need one output for each class, as of ...ForImageClassification or "
    "...ForSequenceClassification. For a network of your own name the function that builds it (`model` "
    "package.module:factory)"
)
COPIES = 4
"""A network is tried with several copies of its tensors, so their limit is 1 / `COPIES` of the limit of a file."""
COUNTS = ("position_ids", "num_batches_tracked")
"""Endings of the names of integer arrays that some versions save and others do not."""
_FLOAT = np.zeros((), np.float32)


class TransformersClassifier:
    """A factory for `pure_module` that builds a classifier, with new weights at every call.

    Attributes:
        architecture: the name of the classifier's class in `transformers`.
        classes: the number of outputs.
        version: the version of `transformers`.
        content_hash: the hash `blake2b:...` of the configuration.
    """

    def __init__(self, path: str | Path) -> None:
        """Reads the configuration, and builds the network once without allocating its tensors.

        Args:
            path: a `config.json`, or a folder with one, as `save_pretrained` writes it.

        Raises:
            InputError: `transformers` is missing; the file is missing, or not the configuration of an image or text
                classifier that `transformers` knows; it requires code, other networks or quantised weights; or the
                network is too large for this machine.
        """
        folder_or_file = Path(path)
        file = folder_or_file / pretrained.CONFIG if folder_or_file.is_dir() else folder_or_file
        self._library = pretrained.import_transformers(file)
        pretrained.refuse_adapter(file.parent)
        self.version: str = self._library.__version__
        text = read_small(file, pretrained.LONGEST)
        self.content_hash = f"blake2b:{hashlib.blake2b(text, digest_size=16).hexdigest()}"
        entries = pretrained.entries_of(file, text)
        pretrained.refuse_entries(entries, file)
        self.architecture, self._auto = network = pretrained.architecture_of(entries, file, CLASSIFIERS, OTHER)
        network_parts = pretrained.built_once(entries, file, network, "float32", MAX_BYTES // COPIES)
        self._config, self._class, self._size = network_parts
        self.classes = int(self._config.num_labels)

    def __call__(self) -> Any:
        """Builds the module, with eager attention, in float32."""
        kinds = {"trust_remote_code": False, "attn_implementation": "eager", "dtype": pretrained.pytorch().float32}
        with pretrained.offline(), quietly():
            return getattr(self._library, self._auto).from_config(deepcopy(self._config), **kinds)

    def __repr__(self) -> str:
        return f"{self.architecture} of transformers {self.version}"

    def as_named_here(self, weights: Mapping[str, np.ndarray], source: str) -> Weights:
        """The weights of a file as float32 arrays, under the names of this module's own `state_dict`.

        `save_pretrained` may write names of earlier versions. Only `transformers` can translate such names.

        Args:
            weights: the arrays of the file, by their names in the file.
            source: the name of the file, for error messages only.

        Raises:
            InputError: the weights do not fit the architecture, or are whole numbers, as quantised weights are.
        """
        torch = pretrained.pytorch()
        # In float32, since PyTorch does not support NumPy's bfloat16.
        real = {
            name: array if array.dtype.kind in "iub" else array.astype(np.float32) for name, array in weights.items()
        }
        state = {name: torch.from_numpy(np.array(array)) for name, array in real.items()}
        wrong = f"{source}: does not fit {self.architecture}"
        advice = "is it of another network, or of another number of classes (num_labels)?"
        how = {"attn_implementation": "eager", "dtype": torch.float32}
        module = pretrained.with_weights(self._class, self._config, self._size, state, wrong, advice, **how)
        arrays = {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}
        for name, array in weights.items():
            if array.dtype.kind in "iu" and not name.endswith(COUNTS) and arrays.get(name, _FLOAT).dtype.kind == "f":
                raise InputError(f"{source}: {name} has whole numbers, as quantised weights have; save float32.")
        return arrays
