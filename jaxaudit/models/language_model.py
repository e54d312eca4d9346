"""Causal language models of `transformers` from a folder on disk: no download, no foreign code, safetensors only."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.memory import memory_bytes
from jaxaudit.data.paths import exists, open_data, regular_files
from jaxaudit.data.weights.weights import weight_files
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
    without,
    without_bars,
)

TOKENIZER, TOKENIZER_CONFIG, ADAPTER = "tokenizer.json", "tokenizer_config.json", "adapter_config.json"
LARGEST_TOKENIZER = 256 * 2**20
"""The most bytes of a tokenizer and of each file of text beside it."""
MEMORY_SHARE = 2
"""Parameters may take 1 / `MEMORY_SHARE` of the memory."""
PRECISIONS = ("float32", "bfloat16", "float16")
POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx")
"""Names of the number of positions in configurations."""
FLOATS = ("F64", "F32", "F16", "BF16")


class Encoded(NamedTuple):
    """A record as tokens.

    Attributes:
        tokens: the numbers of its tokens.
        start: the index of the first token that is scored, at least 1; the number of tokens if none is.
    """

    tokens: tuple[int, ...]
    start: int


class LanguageModel:
    """A causal language model and its tokenizer.

    Attributes:
        name: of the folder.
        positions: the most tokens of a record; None if the configuration states no limit.
        precision: the type of the numbers of weights and activations.
    """

    def __init__(self, folder: Path, precision: str | None = None) -> None:
        """Reads configuration and tokenizer, and builds the network once without allocating its tensors.

        Args:
            folder: as `save_pretrained` of the model and of its tokenizer write it.
            precision: of `PRECISIONS`; by default the one that the configuration states, else float32.

        Raises:
            InputError: `transformers` is missing; the folder is no causal language model that `transformers` knows, has
                code of its own, pickled or quantised weights, an adapter, or no tokenizer; or the network is too large
                for this machine.
        """
        self._folder, file = folder, folder / CONFIG
        self.name = folder.resolve().name
        if not folder.is_dir():
            raise InputError(f"{folder}: is no folder; name the folder of a model that save_pretrained wrote.")
        self._library = import_transformers(file)
        entries = entries_of(read_config(file), file)
        refuse_entries(entries, file)
        self._refuse_files()
        self.precision = precision or _precision(entries, file)
        self._config = self._configuration(entries, file)
        stated = (getattr(self._config.get_text_config(), name, None) for name in POSITIONS)
        self.positions = next((each for each in stated if isinstance(each, int) and each > 0), None)
        with parsing(f"{folder}: its tokenizer cannot be read", "was it saved by another version?"), offline():
            self._tokenizer = self._library.AutoTokenizer.from_pretrained(
                str(folder), config=self._config, local_files_only=True, trust_remote_code=False
            )
            self._end: int | None = self._tokenizer.eos_token_id

    def encode(self, prompts: Sequence[str], answers: Sequence[str]) -> list[Encoded]:
        """Records as tokens: prompt and answer are one text, and the tokens behind those of the prompt are scored.

        With the tokenizer's special tokens. A record with a prompt ends in the token for the end of text, as models are
        tuned on answers; a text alone ends as it is.

        Raises:
            InputError: the tokenizer fails.
        """
        with parsing(f"{self._folder}: its tokenizer fails", "is it the model's own?"):
            whole = self._tokenizer([p + a for p, a in zip(prompts, answers, strict=True)], verbose=False)["input_ids"]
            before = self._tokenizer(list(prompts), verbose=False)["input_ids"]
        found = []
        for prompt, start, tokens in zip(prompts, before, whole, strict=True):
            if prompt and self._end is not None and tokens[-1:] != [self._end]:
                tokens = [*tokens, self._end]
            found.append(Encoded(tuple(tokens), min(max(len(start) if prompt else 1, 1), len(tokens))))
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)

    def load(self) -> Any:
        """The PyTorch module with its weights, in evaluation mode, on the accelerator that PyTorch has or the CPU.

        Raises:
            InputError: the weights are damaged, or are of another network.
        """
        torch = pytorch()
        wrong, advice = f"{self._folder}: its weights cannot be read", "were all files copied?"
        with parsing(wrong, advice), offline(), without_bars(self._library):
            module, said = self._library.AutoModelForCausalLM.from_pretrained(
                str(self._folder),
                config=self._config,
                dtype=getattr(torch, self.precision),
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # or its error names no array; those found are refused below
            )
        for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            names = sorted(each if isinstance(each, str) else each[0] for each in said.get(key) or ())
            if names:
                raise InputError(
                    f"{self._folder}: the weights do not fit {type(module).__name__}: {key.partition('_')[0]}: "
                    f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}; is config.json "
                    "that of this model?"
                )
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return module.eval().to(accelerator or "cpu")

    def _refuse_files(self) -> None:
        """Refuses files that are missing, that would be more than text and numbers, or that are too large."""
        folder = self._folder
        if exists(folder / ADAPTER):
            raise InputError(
                f"{folder}: has {ADAPTER}, so it is an adapter of another model; merge the two (merge_and_unload of "
                "peft) and save the whole model."
            )
        sizes = {path: status.st_size for path, status in regular_files(folder)}
        if folder / TOKENIZER not in sizes:
            raise InputError(f"{folder}: has no {TOKENIZER}; save the model's tokenizer there by its save_pretrained.")
        for path, size in sizes.items():
            if path.parent == folder and path.suffix in (".json", ".txt", ".jinja") and size > LARGEST_TOKENIZER:
                raise InputError(f"{path}: has {size / 2**20:.0f} MiB, too many for a tokenizer or a configuration.")
        described = folder / TOKENIZER_CONFIG
        if described in sizes and entries_of(read_config(described), described).get("auto_map"):
            raise InputError(f"{described}: auto_map names code of its own, which is never run here; delete the entry.")
        files = weight_files(folder)
        if sum(sizes.get(path, 0) for path in files) > memory_bytes() // MEMORY_SHARE:
            raise InputError(f"{folder}: its weights are larger than 1/{MEMORY_SHARE} of this machine's memory.")
        for path in files:
            _refuse_quantised(path)

    def _configuration(self, entries: dict[str, Any], file: Path) -> Any:
        """The configuration of the network, after it was built without tensors.

        Raises:
            InputError: it is not of a causal language model, or of one that is too large.
        """
        auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
        kind, stated = entries.get("model_type"), entries.get("architectures")
        names = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind, ()) if isinstance(kind, str) else ()
        names = (names,) if isinstance(names, str) else names
        if not names or (isinstance(stated, list) and stated and not set(map(str, stated)) & set(names)):
            what = str(stated[0] if names and isinstance(stated, list) else kind)[:60]
            raise InputError(
                f"{file}: is of {what}, no causal language model of transformers {self._library.__version__}; scores "
                "need one that predicts each token from those before it, as ...ForCausalLM."
            )
        known = {name: each for name, each in entries.items() if not name.startswith("_")}
        wrong = f"{file}: is no configuration of {names[0]} that transformers {self._library.__version__} accepts"
        torch = pytorch()
        with parsing(wrong, "was it written by another version?"), offline():
            config = self._library.AutoConfig.for_model(kind, **without(known, {*NOT_OF_THE_NETWORK, "model_type"}))
            config.output_attentions, config.output_hidden_states, config.use_cache = False, False, False
            with bounded(file, memory_bytes() // MEMORY_SHARE), torch.device("meta"):
                self._library.AutoModelForCausalLM.from_config(
                    config, trust_remote_code=False, dtype=getattr(torch, self.precision)
                )
        return config


def _precision(entries: dict[str, Any], file: Path) -> str:
    stated = entries.get("dtype") or entries.get("torch_dtype") or "float32"
    if stated not in PRECISIONS:
        raise InputError(f"{file}: states the type {str(stated)[:40]!r}; give `precision`: {', '.join(PRECISIONS)}.")
    return stated


def _refuse_quantised(path: Path) -> None:
    """Refuses weights of whole numbers or of 8 bits, which would be read as if they were the weights themselves."""
    from safetensors import safe_open

    with open_data(path):
        pass
    wrong, advice = f"{path}: is not a complete safetensors file", "was it written completely?"
    with parsing(wrong, advice), safe_open(str(path), "numpy") as file:
        kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    for name, kind in kinds.items():
        if name.endswith("weight") and kind not in FLOATS:
            raise InputError(
                f"{path}: {name[:80]} has numbers of type {kind}, as quantised weights have; save the model in float32."
            )
