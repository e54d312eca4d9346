"""Readers of models that others saved: folders of `save_pretrained`."""

import json
import random
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from support.language_models import save_model, save_tokenizer

from fuzz.readers import Reader, only
from fuzz.results import weights
from jaxaudit.data.sequences import read_tokenizer, sequences
from jaxaudit.data.texts import Texts
from jaxaudit.data.weights import read_weights, safetensors_bytes

BERT = {
    "architectures": ["BertForSequenceClassification"],
    "model_type": "bert",
    "id2label": {"0": "ant", "1": "bee"},
    "label2id": {"ant": 0, "bee": 1},
    "hidden_act": "gelu",
    **dict.fromkeys(("hidden_size", "intermediate_size", "max_position_embeddings", "vocab_size"), 8),
    **dict.fromkeys(("num_attention_heads", "num_hidden_layers"), 1),
}
TOKENIZER = {"version": "1.0", "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1}}, "added_tokens": []}
OWN_CODE = "import fuzz_canary\n\nModel = fuzz_canary.Thing\n"


def saved(folder: Path, arrays: dict[str, np.ndarray], shards: int) -> None:
    """What `save_pretrained` leaves: configuration, weights in one file or several, tokenizer; and code of its own."""
    place = folder / "hub"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(BERT))
    (place / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (place / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (place / "modeling_own.py").write_text(OWN_CODE)
    if shards == 1:
        (place / "model.safetensors").write_bytes(safetensors_bytes(arrays))
        return
    names = [f"model-{shard + 1:05}-of-{shards:05}.safetensors" for shard in range(shards)]
    placed = {name: names[at % shards] for at, name in enumerate(arrays)}
    for file in names:
        part = {name: each for name, each in arrays.items() if placed[name] == file}
        (place / file).write_bytes(safetensors_bytes(part))
    index = {"metadata": {"total_size": sum(each.nbytes for each in arrays.values())}, "weight_map": placed}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))


def read_folder(folder: Path, choose: random.Random) -> object:
    place = only(folder, "hub")
    inner = choose.choice(("", "", "", "model.safetensors", "model.safetensors.index.json", "config.json"))
    return read_weights(place / inner if place.is_dir() else place)


def classifier(folder: Path) -> None:
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(**{key: BERT[key] for key in BERT if key != "architectures"})
    model = transformers.BertForSequenceClassification(config)
    saved(folder, {name: each.detach().numpy().copy() for name, each in model.state_dict().items()}, 2)


def read_classifier(folder: Path, choose: random.Random) -> object:
    """The network by its configuration alone, with the weights beside it."""
    from jaxaudit.models.pretrained import TransformersClassifier

    found = TransformersClassifier(folder / "hub")
    return found.as_named_here(read_weights(folder / "hub"), "hub")


def causal(folder: Path) -> None:
    save_model(folder / "hub", max_shard_size="20KB")
    (folder / "hub" / "modeling_own.py").write_text(OWN_CODE)


def read_causal(folder: Path, choose: random.Random) -> object:
    """The model, with its weights and the scores of two texts."""
    from jaxaudit.models.causal import token_scores
    from jaxaudit.models.language_model import STARTS, LanguageModel

    model = LanguageModel(folder / "hub")
    start = choose.choice(STARTS)
    return token_scores(model, model.encode(["a", ""], ["b c", "who wrote it"], start))["loss"].shape


def read_one_tokenizer(folder: Path, choose: random.Random) -> object:
    """Texts as tokens, the same when they are cut again."""
    found = read_tokenizer(folder / "tokenizer.json")
    texts = ["", "Who wrote it? nobody did", "é日 " * 20]
    tokens = found.encode(texts)
    assert tokens == found.encode(texts), "random"
    assert all(0 <= number < found.end for each in tokens for number in each.numbers)
    return len(sequences([Texts("prompt", ("Who ",), ("wrote it",), (b"",), "x")], found)[0])


TOKENIZERS = find_spec("tokenizers") and find_spec("transformers")
READERS = [
    Reader("hub", lambda folder: saved(folder, weights(), 1), read_folder, 3),
    Reader("hub-shards", lambda folder: saved(folder, weights(), 2), read_folder, 3),
    *([Reader("hub-classifier", classifier, read_classifier, 3)] if find_spec("transformers") else []),
    *([Reader("tokenizer", lambda folder: save_tokenizer(folder, True), read_one_tokenizer, 3)] if TOKENIZERS else []),
    *([Reader("hub-causal", causal, read_causal, 3)] if find_spec("transformers") else []),
]
