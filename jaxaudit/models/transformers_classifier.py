"""Builds an image or text classifier of `transformers` from a configuration on disk, without downloads or foreign code.

What a configuration must not ask for is in `pretrained`.
"""

import hashlib
import importlib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from jaxaudit.data.formats.parsing import parsing, quietly
from jaxaudit.data.weights.weights import Weights
from jaxaudit.errors import InputError
from jaxaudit.models.pretrained import (
    CONFIG,
    NOT_OF_THE_NETWORK,
    bounded,
    entries_of,
    import_transformers,
    offline,
    pytorch,
    read_config,
    refuse_entries,
    with_weights,
    without,
)

CLASSIFIERS = {
    "AutoModelForImageClassification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
}
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
        given = Path(path)
        self._file = given / CONFIG if given.is_dir() else given
        self._library = import_transformers(self._file)
        self.version: str = self._library.__version__
        text = read_config(self._file)
        self.content_hash = f"blake2b:{hashlib.blake2b(text, digest_size=16).hexdigest()}"
        entries = entries_of(text, self._file)
        refuse_entries(entries, self._file)
        kind = entries.get("model_type")
        self.architecture, self._auto = _classifier(self._library, entries, self._file)
        wrong = f"{self._file}: is no configuration of {self.architecture} that transformers {self.version} accepts"
        known = {name: each for name, each in entries.items() if not name.startswith("_")}
        with parsing(wrong, "was it written by another version?"):
            config = self._library.AutoConfig.for_model(kind, **without(known, {*NOT_OF_THE_NETWORK, "model_type"}))
            config.return_dict, config.output_attentions, config.output_hidden_states = True, False, False
            config.use_cache = False
            self._config = config
            self.classes = int(config.num_labels)
            with bounded(self._file), pytorch().device("meta"):
                self._class = type(self())

    def __call__(self) -> Any:
        """Builds the module, with eager attention, in float32."""
        kinds = {"trust_remote_code": False, "attn_implementation": "eager", "dtype": pytorch().float32}
        with offline(), quietly():
            return getattr(self._library, self._auto).from_config(deepcopy(self._config), **kinds)

    def __repr__(self) -> str:
        return f"{self.architecture} of transformers {self.version}"

    def as_named_here(self, weights: Mapping[str, np.ndarray], source: str) -> Weights:
        """The weights of a file in float32, with the names that the module uses.

        `save_pretrained` writes names of earlier versions, which only `transformers` can translate.

        Raises:
            InputError: arrays are missing, unknown, or of another shape.
        """
        torch = pytorch()
        state = {name: torch.from_numpy(np.array(_real(each))) for name, each in weights.items()}
        wrong = f"{source}: does not fit {self.architecture}"
        advice = "is it of another network, or of another number of classes (num_labels)?"
        how = {"attn_implementation": "eager", "dtype": torch.float32}
        module = with_weights(self._class, self._config, state, wrong, advice, **how)
        arrays = {name: each.detach().numpy().copy() for name, each in module.state_dict().items()}
        for name, each in weights.items():
            if each.dtype.kind in "iu" and not name.endswith(COUNTS) and arrays.get(name, _FLOAT).dtype.kind == "f":
                raise InputError(
                    f"{source}: {name} has whole numbers ({each.dtype}), as quantised weights have; save the model in "
                    "float32."
                )
        return arrays


def _classifier(library: Any, entries: Mapping[str, Any], file: Path) -> tuple[str, str]:
    """The class of the network, and the class of `transformers` that builds it from a configuration."""
    auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    kind = entries.get("model_type")
    known = library.CONFIG_MAPPING.keys()
    if not isinstance(kind, str) or kind not in known:
        shown = "has no model_type" if kind is None else f"has the model_type {str(kind)[:40]!r}"
        raise InputError(
            f"{file}: {shown}, which transformers {library.__version__} does not know; for a network of your own name "
            "the function that builds it (`model` package.module:factory)."
        )
    found: dict[str, str] = {}
    for maker, mapping in CLASSIFIERS.items():
        names = getattr(auto, mapping).get(kind, ()) if not kind.startswith("timm") else ()
        found |= dict.fromkeys([names] if isinstance(names, str) else names, maker)
    stated = entries.get("architectures")
    stated = [name for name in stated if isinstance(name, str)] if isinstance(stated, list) else []
    chosen = [name for name in stated if name in found] if stated else list(found)
    if not chosen:
        what = f"is of {stated[0][:60]}" if stated else f"has the model_type {kind}"
        raise InputError(
            f"{file}: {what}, no image or text classifier of transformers; log-likelihoods need one output for each "
            "class, as of ...ForImageClassification or ...ForSequenceClassification."
        )
    return chosen[0], found[chosen[0]]


def _real(values: np.ndarray) -> np.ndarray:
    """Converts floats to float32, since PyTorch does not support NumPy's bfloat16."""
    return values if values.dtype.kind in "iub" else values.astype(np.float32)
