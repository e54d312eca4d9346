"""Whether a folder is that of a causal language model, or of an adapter, by its files alone.

Looked at before anything else is read: a wrong name is told at once, and `transformers` need not be imported for it.
"""

from pathlib import Path
from typing import Any

from jaxaudit.data.paths import exists
from jaxaudit.data.weights.weights import weight_files
from jaxaudit.errors import InputError
from jaxaudit.models import pretrained

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"


def model_entries(folder: Path, adapter: Path | None = None) -> dict[str, Any]:
    """The configuration of the model in a folder, if the folder has all files of one; `transformers` is not needed.

    Args:
        folder, adapter: as for `LanguageModel`.

    Raises:
        InputError: there is no folder, or no configuration, tokenizer or safetensors in it; it is an adapter; or its
            configuration asks for code or quantised weights.
    """
    file, cutter = folder / pretrained.CONFIG, cutter_of(folder, adapter)
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder; name the folder of a model that save_pretrained wrote.")
    pretrained.refuse_adapter(folder)
    if not exists(file):
        raise InputError(f"{folder}: has no {file.name}; name the folder of a model that save_pretrained wrote.")
    entries = pretrained.entries_of(file)
    pretrained.refuse_entries(entries, file)
    if adapter is not None and not exists(adapter / pretrained.ADAPTER):
        raise InputError(
            f"{adapter}: has no {pretrained.ADAPTER}; name the folder of an adapter that peft wrote. A whole model is "
            "named without `adapter`."
        )
    if not exists(cutter / TOKENIZER):
        raise InputError(f"{cutter}: has no {TOKENIZER}; save the model's tokenizer there by its save_pretrained.")
    described = cutter / TOKENIZER_CONFIG
    if exists(described) and pretrained.entries_of(described).get("auto_map"):
        raise InputError(f"{described}: auto_map names code of its own, which is never run here; delete the entry.")
    missing = [path.name for path in weight_files(folder) if not exists(path)]
    if missing:
        raise InputError(f"{folder}: {missing[0][:80]} is missing; were all files copied?")
    return entries


def cutter_of(folder: Path, adapter: Path | None) -> Path:
    """The folder whose tokenizer cuts the texts."""
    return adapter if adapter is not None and exists(adapter / TOKENIZER) else folder
