"""Classifiers of transformers from a folder on disk, beside transformers itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli_runs import jaxaudit
from support.torch_twins import squared_norms

from jaxaudit import read_weights
from jaxaudit.errors import InputError
from jaxaudit.models import TransformersClassifier

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the torch extra)")
pytest.importorskip("torchax", reason="torchax is not installed (the torch extra)")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "num_labels": 3}


def vit() -> Any:
    torch.manual_seed(3)
    config = transformers.ViTConfig(image_size=8, patch_size=4, initializer_range=0.3, **SMALL)
    return transformers.ViTForImageClassification(config).eval()


def bert() -> Any:
    torch.manual_seed(3)
    config = transformers.BertConfig(vocab_size=30, max_position_embeddings=16, initializer_range=0.3, **SMALL)
    return transformers.BertForSequenceClassification(config).eval()


def save(module: Any, folder: Path, **how: Any) -> Path:
    bars = transformers.utils.logging
    bars.disable_progress_bar()
    module.save_pretrained(folder, **how)
    bars.enable_progress_bar()
    return folder


def changed(folder: Path, **entries: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))
    return folder


def test_a_saved_vit_is_measured_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    module, labels = vit(), np.array([0, 1, 2, 0])
    save(module, tmp_path / "saved-vit")
    images = np.random.default_rng(1).random((4, 8, 8, 3), dtype=np.float32)
    np.savez("forget.npz", x=images, y=labels)
    done = jaxaudit("efficacy", "--model", "saved-vit", "--data", "forget.npz", "--json")
    result = done.result
    records = [{"pixel_values": np.moveaxis(each, -1, 0).copy()} for each in images]
    expected = squared_norms(module, records, labels)
    assert result["models"][0]["information"] == pytest.approx(np.mean(expected), rel=1e-5)
    assert result["framework"] == "torch"
    assert result["models"][0]["conversion_error"] < 1e-5
    assert any("ViTForImageClassification" in each for each in result["finding"]["caveats"])
    assert result["provenance"]["versions"].keys() >= {"transformers"}
    assert done.err.count("Loading") == 0


def test_a_saved_bert_in_several_files_gets_ids_and_mask_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    module, labels = bert(), np.array([2, 1, 0])
    save(module, tmp_path / "bert", max_shard_size="5KB")
    draw = np.random.default_rng(1)
    ids, mask = draw.integers(1, 30, (3, 6)), np.ones((3, 6), np.int64)
    mask[1, 4:] = mask[2, 2:] = 0
    np.savez(tmp_path / "texts.npz", input_ids=ids, attention_mask=mask, y=labels)
    assert len(list((tmp_path / "bert").glob("*.safetensors"))) > 1
    words = ("--model", "bert/config.json", "--params", "bert/model.safetensors.index.json", "--data", "texts.npz")
    result = jaxaudit("efficacy", *words, "--json").result
    records = [{"input_ids": row, "attention_mask": seen} for row, seen in zip(ids, mask, strict=True)]
    expected = np.mean(squared_norms(module, records, labels))
    assert result["models"][0]["information"] == pytest.approx(expected, rel=1e-5)


def test_names_are_those_of_the_module_whichever_version_wrote_them(tmp_path: Path):
    module = vit()
    factory = TransformersClassifier(save(module, tmp_path))
    assert (factory.classes, factory.architecture) == (3, "ViTForImageClassification")
    own = {name: each.numpy() for name, each in module.state_dict().items()}
    saved = read_weights(tmp_path)
    assert saved.keys() != own.keys()
    for weights in (saved, own):
        found = factory.as_named_here(weights, "file")
        assert found.keys() == own.keys()
        for name, each in own.items():
            np.testing.assert_array_equal(found[name], each)


def test_building_draws_new_weights(tmp_path: Path):
    factory = TransformersClassifier(save(bert(), tmp_path))
    first, second = (next(factory().parameters()).detach().numpy() for _ in range(2))
    assert (first != second).any()
    assert factory().config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"model_type": "mine"}, ["is of mine", "no image or text classifier", "`model` package.module:factory"]),
        ({"model_type": ["bert"]}, ["is of no model_type"]),
        ({"text_config": {"auto_map": {"AutoModel": "evil.Net"}}}, ["auto_map", "never run"]),
        ({"architectures": ["BertForMaskedLM"]}, ["BertForMaskedLM", "no image or text classifier"]),
        ({"model_type": "clip_text_model", "architectures": None}, ["clip_text_model", "no image or text classifier"]),
        ({"use_timm_backbone": True}, ["another package"]),
        ({"hidden_size": 10**400}, ["larger than any size"]),
        ({"hidden_act": "os.system"}, ["no configuration of BertForSequenceClassification"]),
    ],
)
def test_what_a_configuration_must_not_ask_for_is_refused(entries: dict[str, Any], words: list[str], tmp_path: Path):
    changed(save(bert(), tmp_path), **entries)
    with pytest.raises(InputError) as caught:
        TransformersClassifier(tmp_path)
    for word in words:
        assert word in str(caught.value)


def test_weights_that_do_not_fit_are_refused(tmp_path: Path):
    factory, weights = TransformersClassifier(save(bert(), tmp_path)), read_weights(tmp_path)
    rest = {name: each for name, each in weights.items() if name != "classifier.bias"}
    for wrong, words in ((rest, "missing: class"), ({**rest, "classifier.bias": np.ones(3, np.int8)}, "quantised")):
        with pytest.raises(InputError, match=words):
            factory.as_named_here(wrong, "file")
