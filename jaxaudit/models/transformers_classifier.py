"""Builds an image or text classifier of `transformers` from a configuration on disk, without downloads or foreign code.

`transformers` and PyTorch are imported only in this module, and only for such a configuration.
"""

import hashlib
import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from jaxaudit.data.formats.parsing import parsing, quietly
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import file_size, open_data
from jaxaudit.data.weights.weights import Weights
from jaxaudit.errors import InputError

INSTALL = "pip install 'jaxaudit[transformers]'"
CONFIG = "config.json"
LONGEST = 16 * 2**20
"""The largest configuration file in bytes: one with ImageNet's 21,841 class names has a million."""
LARGEST = 2**24
"""The largest number in a configuration, since its numbers are sizes."""
MOST_PARTS = 20_000
"""The largest number of modules in a network."""
COPIES = 4
"""A network is tried with several copies of its tensors, so their limit is 1 / `COPIES` of the limit of a file."""
CLASSIFIERS = {
    "AutoModelForImageClassification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
}
REFUSED = {
    "auto_map": "names code of its own, which is never run here; delete the entry if transformers knows its model_type",
    "quantization_config": "is of quantised weights, which have no gradient; save the model in float32",
    "use_pretrained_backbone": "asks for weights of another network; save the whole model with backbone_config",
    "use_timm_backbone": "asks for a network of another package; name a function that builds it (`model`)",
    "backbone": "names another network; save the whole model with backbone_config",
}
"""Refused entries of a configuration, with the reason: they would run code, download, or change the weights' format."""
COUNTS = ("position_ids", "num_batches_tracked")
"""Endings of the names of integer arrays that some versions save and others do not."""
_FLOAT = np.zeros((), np.float32)
NOT_OF_THE_NETWORK = ("attn_implementation", "experts_implementation", "torch_dtype", "dtype", "name_or_path")
"""Entries about how the network is computed, which are ignored: that is decided here."""


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
        self._library = _transformers(self._file)
        self.version: str = self._library.__version__
        text = _read(self._file)
        self.content_hash = f"blake2b:{hashlib.blake2b(text, digest_size=16).hexdigest()}"
        entries = _entries(text, self._file)
        _check(entries, self._file)
        kind = entries.get("model_type")
        self.architecture, self._auto = _classifier(self._library, entries, self._file)
        wrong = f"{self._file}: is no configuration of {self.architecture} that transformers {self.version} accepts"
        known = {name: each for name, each in entries.items() if not name.startswith("_")}
        with parsing(wrong, "was it written by another version?"):
            config = self._library.AutoConfig.for_model(kind, **_without(known, {*NOT_OF_THE_NETWORK, "model_type"}))
            config.return_dict, config.output_attentions, config.output_hidden_states = True, False, False
            config.use_cache = False
            self._config = config
            self.classes = int(config.num_labels)
            with _bounded(self._file), pytorch().device("meta"):
                self._class = type(self())

    def __call__(self) -> Any:
        """Builds the module, with eager attention, in float32."""
        kinds = {"trust_remote_code": False, "attn_implementation": "eager", "dtype": pytorch().float32}
        with _offline(), quietly():
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
        with parsing(wrong, advice), _offline(), _without_bars(self._library):
            found = self._class.from_pretrained(
                None,
                config=deepcopy(self._config),
                state_dict=state,
                output_loading_info=True,
                local_files_only=True,
                ignore_mismatched_sizes=True,  # or its error names no array; those found are refused below
                attn_implementation="eager",
                dtype=torch.float32,
            )
        module, said = found
        kinds = {"missing_keys": "missing", "unexpected_keys": "unexpected", "mismatched_keys": "of another shape"}
        for key, words in kinds.items():
            names = sorted(each if isinstance(each, str) else each[0] for each in said.get(key) or ())
            if names:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                raise InputError(f"{wrong}: {words}: {', '.join(map(str, names[:3]))}{more}; {advice}")
        arrays = {name: each.detach().numpy().copy() for name, each in module.state_dict().items()}
        for name, each in weights.items():
            if each.dtype.kind in "iu" and not name.endswith(COUNTS) and arrays.get(name, _FLOAT).dtype.kind == "f":
                raise InputError(
                    f"{source}: {name} has whole numbers ({each.dtype}), as quantised weights have; save the model in "
                    "float32."
                )
        return arrays


def pytorch() -> Any:
    """Imports PyTorch."""
    return importlib.import_module("torch")


def _transformers(file: Path) -> Any:
    try:
        pytorch()
        return importlib.import_module("transformers")
    except ImportError as error:
        raise InputError(
            f"{file}: is a configuration of transformers, which could not be imported ({error.name or error}). "
            f"{INSTALL}."
        ) from error


def _read(file: Path) -> bytes:
    with open_data(file) as opened:
        size = file_size(opened)
        if size > LONGEST:
            raise InputError(f"{file}: has {size / 2**20:.0f} MiB, too many for a configuration; is it one?")
        return opened.read(size)


def _entries(text: bytes, file: Path) -> dict[str, Any]:
    with parsing(f"{file}: is not JSON", "was it written to its end?"):
        entries = json.loads(text)
    if not isinstance(entries, dict):
        raise InputError(f"{file}: is no configuration of a network; name the config.json of save_pretrained.")
    return entries


def _check(entries: Any, file: Path) -> None:
    """Refuses entries, at any depth, that require more than a network, and numbers that are too large for sizes."""
    waiting = [entries]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            for name, why in REFUSED.items():
                if each.get(name):
                    raise InputError(f"{file}: {name} {why}.")
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
        elif isinstance(each, int | float) and not abs(each) <= LARGEST:
            raise InputError(
                f"{file}: has the number {str(each)[:20]}, larger than any size of a network here ({LARGEST:,})."
            )


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


def _without(entries: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """The entries without these names, at every depth."""
    return {
        name: _without(each, names) if isinstance(each, dict) else each
        for name, each in entries.items()
        if name not in names
    }


def _real(values: np.ndarray) -> np.ndarray:
    """Converts floats to float32, since PyTorch does not support NumPy's bfloat16."""
    return values if values.dtype.kind in "iub" else values.astype(np.float32)


@contextmanager
def _offline() -> Iterator[None]:
    """A context in which `transformers` does not download anything."""
    constants: Any = importlib.import_module("huggingface_hub.constants")
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def _without_bars(library: Any) -> Iterator[None]:
    logging = library.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _bounded(file: Path) -> Iterator[None]:
    """A context that limits the number of modules built, and the size of tensors before they are allocated."""
    hooks = pytorch().nn.modules.module
    parts, size, allowed = 0, 0, MAX_BYTES // COPIES

    def part(*_: Any) -> None:
        nonlocal parts
        parts += 1
        if parts > MOST_PARTS:
            raise InputError(f"{file}: states a network of more than {MOST_PARTS:,} parts; is a number in it wrong?")

    def tensor(module: Any, name: str, values: Any) -> None:
        nonlocal size
        size += 0 if values is None else values.numel() * values.element_size()
        if size > allowed:
            raise InputError(
                f"{file}: states a network of more than {allowed / 2**30:.1f} GiB, too large for this machine's memory."
            )

    with ExitStack() as stack:
        for register, count in (
            (hooks.register_module_module_registration_hook, part),
            (hooks.register_module_parameter_registration_hook, tensor),
            (hooks.register_module_buffer_registration_hook, tensor),
        ):
            stack.callback(register(count).remove)
        yield
