"""Configurations of `transformers` on disk: read, bounded, and refused where they ask for more than a network.

Nothing is downloaded, and no foreign code is run. `transformers` and PyTorch are imported within functions; the files
of a folder are checked before, so that a wrong name is an error at once.
"""

import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxaudit.data.formats.parsing import parsing, quietly
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import exists, read_small
from jaxaudit.data.weights import Weights, weight_files
from jaxaudit.errors import InputError, few, imported
from jaxaudit.json_types import hash_of

INSTALL = "pip install 'jaxaudit[transformers]'"
CONFIG, ADAPTER = "config.json", "adapter_config.json"
LONGEST = 16 * 2**20
"""The largest configuration file in bytes: one with ImageNet's 21,841 class names has a million."""
LARGEST = 2**24
"""The largest number in a configuration, since its numbers are sizes."""
NO_SIZES = ("rope_theta",)
"""Entries whose numbers are no sizes."""
MOST_LABELS = 2**17
"""The largest number of classes, each of which gets a name as a configuration is read."""
TIMES = 2
"""How many times as many numbers as its files a network may have: layers that share weights are saved once."""
MOST_PARTS = 20_000
"""The largest number of modules in a network."""
REFUSED = {
    "auto_map": "names code of its own, which is never run here; delete the entry if transformers knows its model_type",
    "quantization_config": "is of quantised weights, whose numbers are coarse; save the model in float32 or bfloat16",
    "use_pretrained_backbone": "asks for weights of another network; save the whole model with backbone_config",
    "use_timm_backbone": "asks for a network of another package; name a function that builds it (`model`)",
    "add_cross_attention": "asks for the outputs of an encoder, which nothing gives here",
    "backbone": "names another network; save the whole model with backbone_config",
}
"""Refused entries of a configuration, with the reason: they would run code, download, or change the weights' format."""
NOT_OF_THE_NETWORK = ("attn_implementation", "experts_implementation", "torch_dtype", "dtype", "name_or_path")
"""Entries about how the network is computed, which are ignored: that is decided here."""


def pytorch() -> Any:
    return importlib.import_module("torch")


def import_transformers(file: Path) -> Any:
    """Imports `transformers`, for this file; it and PyTorch must be installed."""
    imported("torch", f"{file} is a configuration of transformers, which", INSTALL)
    return imported("transformers", f"{file} is a configuration that", INSTALL)


def entries_of(file: Path, text: bytes | None = None) -> dict[str, Any]:
    """The entries of a configuration, which must be a JSON object; `text` are its bytes if they are at hand."""
    with parsing(f"{file}: is not JSON", "was it written to its end?"):
        entries = json.loads(read_small(file, LONGEST) if text is None else text)
    if not isinstance(entries, dict):
        raise InputError(f"{file}: is no configuration of a network; name the config.json of save_pretrained.")
    return entries


def refuse_adapter(folder: Path) -> None:
    """Refuses the folder of an adapter, which is no model without another."""
    if exists(folder / ADAPTER):
        raise InputError(
            f"{folder}: has {ADAPTER}, so it is an adapter of another model. Name that model, and the "
            "adapter as `adapter`, in `jaxaudit scores lm`; any other command needs the two merged: "
            "peft.PeftModel.from_pretrained(base, ADAPTER).merge_and_unload().save_pretrained(FOLDER). Save the "
            "tokenizer there, too."
        )


def refuse_entries(entries: Any, file: Path) -> None:
    """Refuses entries, at any depth, that require more than a network, and numbers that are too large for sizes."""
    waiting = [entries]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, dict):
            for name, why in REFUSED.items():
                if entry.get(name):
                    raise InputError(f"{file}: {name} {why}.")
            labels = entry.get("num_labels")
            if isinstance(labels, int | float) and labels > MOST_LABELS:
                raise InputError(f"{file}: has num_labels of more than {MOST_LABELS:,} classes; is the number right?")
            waiting.extend(value for name, value in entry.items() if name not in NO_SIZES)
        elif isinstance(entry, list):
            waiting.extend(entry)
        elif isinstance(entry, int | float) and not abs(entry) <= LARGEST:
            raise InputError(
                f"{file}: has the number {str(entry)[:20]}, larger than any size of a network here ({LARGEST:,})."
            )


def architecture_of(entries: Mapping[str, Any], file: Path, makers: Mapping[str, str], other: str) -> tuple[str, str]:
    """The class of a network, and the class of `transformers` that builds it: one of `makers`, which give the name of
    the mapping of the networks that each knows. `other`: what a network of another task is not, for the message.
    """
    auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    kind, stated = entries.get("model_type"), entries.get("architectures")
    maker_of_class: dict[str, str] = {}
    for maker, mapping in makers.items():
        is_name = isinstance(kind, str) and not kind.startswith("timm")
        names = getattr(auto, mapping).get(kind, ()) if is_name else ()
        maker_of_class |= dict.fromkeys([names] if isinstance(names, str) else names, maker)
    stated = [name for name in stated if isinstance(name, str)] if isinstance(stated, list) else []
    chosen = [name for name in stated if name in maker_of_class] if stated else list(maker_of_class)
    if not chosen:
        version = importlib.import_module("transformers").__version__
        known_kind = kind if isinstance(kind, str) else "no model_type"
        kind_text = str(stated[0] if maker_of_class and stated else known_kind)[:60]
        raise InputError(f"{file}: is of {kind_text}, which transformers {version} does not know, or knows as {other}.")
    return chosen[0], maker_of_class[chosen[0]]


def built_once(
    entries: Mapping[str, Any], file: Path, network: tuple[str, str], dtype: str, allowed: int
) -> "BuiltNetwork":
    """A network, built without allocating its tensors, of at most `allowed` bytes. `network`: what it is, in words, and
    the class of `transformers` that makes it.
    """
    library: Any = importlib.import_module("transformers")
    wrong = f"{file}: is no configuration of {network[0]} that transformers {library.__version__} accepts"
    network_entries = {name: entry for name, entry in entries.items() if not name.startswith("_")}
    with parsing(wrong, "was it written by another version?"), offline():
        kind = entries["model_type"]
        config = library.AutoConfig.for_model(kind, **without(network_entries, {*NOT_OF_THE_NETWORK, "model_type"}))
        config.return_dict, config.output_attentions, config.output_hidden_states = True, False, False
        config.use_cache = False
        with bounded(file, allowed), pytorch().device("meta"):
            how = {"trust_remote_code": False, "dtype": getattr(pytorch(), dtype)}
            module = getattr(library, network[1]).from_config(deepcopy(config), **how)
            return BuiltNetwork(config, type(module), sum(parameter.numel() for parameter in module.parameters()))


def without(entries: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {
        name: without(entry, names) if isinstance(entry, dict) else entry
        for name, entry in entries.items()
        if name not in names
    }


class BuiltNetwork(NamedTuple):
    """A network of `transformers`: its configuration, its class, and how many numbers its parameters have."""

    config: Any
    kind: Any
    size: int

    def with_weights(self, state: Mapping[str, Any], wrong: str, advice: str, **how: Any) -> Any:
        """A module with these tensors, whose older names are translated. Its parameters are not allocated if the
        tensors have far fewer numbers. `how`: arguments of `from_pretrained`.
        """
        library: Any = importlib.import_module("transformers")
        saved = sum(tensor.numel() for tensor in state.values())
        if self.size > TIMES * saved:
            raise InputError(f"{wrong}: there are {saved:,} numbers, and the network has {self.size:,}; {advice}")
        with parsing(wrong, advice), offline(), _without_bars(library):
            module, loading_report = self.kind.from_pretrained(
                None,
                config=deepcopy(self.config),
                state_dict=dict(state),
                output_loading_info=True,
                local_files_only=True,
                ignore_mismatched_sizes=True,  # or its error names no array; those found are refused below
                **how,
            )
        kinds = {"missing_keys": "missing", "unexpected_keys": "unexpected", "mismatched_keys": "of another shape"}
        for key, words in kinds.items():
            names = sorted(
                key_text if isinstance(key_text, str) else key_text[0] for key_text in loading_report.get(key) or ()
            )
            if names:
                raise InputError(f"{wrong}: {words}: {few(names, 3)}; {advice}")
        return module


@contextmanager
def offline() -> Iterator[None]:
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
def bounded(file: Path, allowed: int) -> Iterator[None]:
    """A context that limits the number of modules built, and the bytes of tensors before they are allocated."""
    hooks = pytorch().nn.modules.module
    parts, size = 0, 0

    def part(*_: Any) -> None:
        nonlocal parts
        parts += 1
        if parts > MOST_PARTS:
            raise InputError(f"{file}: states a network of more than {MOST_PARTS:,} parts; is a number in it wrong?")

    def tensor(module: Any, name: str, values: Any) -> None:
        nonlocal size
        size += 0 if values is None else values.numel() * values.element_size()
        refuse_larger(file, size, allowed, "the network is too large for this machine's memory")

    with ExitStack() as stack:
        for register, count in (
            (hooks.register_module_module_registration_hook, part),
            (hooks.register_module_parameter_registration_hook, tensor),
            (hooks.register_module_buffer_registration_hook, tensor),
        ):
            stack.callback(register(count).remove)
        yield


TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"


def model_entries(folder: Path, adapter: Path | None = None) -> dict[str, Any]:
    """The configuration of the model in a folder, if the folder has all files of one; `transformers` is not needed."""
    file, tokenizer_folder = folder / CONFIG, tokenizer_folder_of(folder, adapter)
    refuse_adapter(folder)
    _refuse_missing(file, tokenizer_folder / TOKENIZER, *(() if adapter is None else (adapter / ADAPTER,)))
    entries = entries_of(file)
    refuse_entries(entries, file)
    described = tokenizer_folder / TOKENIZER_CONFIG
    if exists(described) and entries_of(described).get("auto_map"):
        raise InputError(f"{described}: auto_map {REFUSED['auto_map']}.")
    _refuse_missing(*weight_files(folder))
    return entries


def _refuse_missing(*files: Path) -> None:
    missing = next((path for path in files if not exists(path)), None)
    if missing is not None:
        raise InputError(
            f"{missing.parent}: has no {missing.name[:80]}; name a folder with all files of a model and its tokenizer, "
            "as save_pretrained writes it, and as `adapter`, if any, that of an adapter that peft wrote."
        )


def tokenizer_folder_of(folder: Path, adapter: Path | None) -> Path:
    """The folder whose tokenizer cuts the texts."""
    return adapter if adapter is not None and exists(adapter / TOKENIZER) else folder


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
    """A factory for `pure_module` that builds a classifier, with new weights at every call: the class `architecture` of
    this version of `transformers`, and the hash of its configuration.
    """

    def __init__(self, path: str | Path) -> None:
        """Reads a `config.json`, or that of a folder, and builds the network once without allocating its tensors."""
        folder_or_file = Path(path)
        file = folder_or_file / CONFIG if folder_or_file.is_dir() else folder_or_file
        self._library = import_transformers(file)
        refuse_adapter(file.parent)
        self.version: str = self._library.__version__
        text = read_small(file, LONGEST)
        self.content_hash = hash_of([text])
        entries = entries_of(file, text)
        refuse_entries(entries, file)
        self.architecture, self._auto = network = architecture_of(entries, file, CLASSIFIERS, OTHER)
        self._built = built_once(entries, file, network, "float32", MAX_BYTES // COPIES)
        self.classes = int(self._built.config.num_labels)

    def __call__(self) -> Any:
        """Builds the module, with eager attention, in float32."""
        kinds = {"trust_remote_code": False, "attn_implementation": "eager", "dtype": pytorch().float32}
        with offline(), quietly():
            return getattr(self._library, self._auto).from_config(deepcopy(self._built.config), **kinds)

    def __repr__(self) -> str:
        return f"{self.architecture} of transformers {self.version}"

    def as_named_here(self, weights: Mapping[str, np.ndarray], source: str) -> Weights:
        """The weights of a file (`source`, for messages) as float32 arrays, under the names of this module's own
        `state_dict`. `save_pretrained` may write names of earlier versions, which only `transformers` can translate.
        """
        torch = pytorch()
        # In float32, since PyTorch does not support NumPy's bfloat16.
        real = {
            name: array if array.dtype.kind in "iub" else array.astype(np.float32) for name, array in weights.items()
        }
        state = {name: torch.from_numpy(np.array(array)) for name, array in real.items()}
        wrong = f"{source}: does not fit {self.architecture}"
        advice = "is it of another network, or of another number of classes (num_labels)?"
        how = {"attn_implementation": "eager", "dtype": torch.float32}
        module = self._built.with_weights(state, wrong, advice, **how)
        arrays = {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}
        for name, array in weights.items():
            if array.dtype.kind in "iu" and not name.endswith(COUNTS) and arrays.get(name, _FLOAT).dtype.kind == "f":
                raise InputError(f"{source}: {name} has whole numbers, as quantised weights have; save float32.")
        return arrays
