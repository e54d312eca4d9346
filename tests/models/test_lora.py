"""Adapters on disk: merged as peft merges them and as the formula says, and what is more than LoRA is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.language_models import ALPHA, LAYERS, RANK, SIZE, save_model, write_lora
from support.memory import at_most

from jaxaudit.errors import InputError
from jaxaudit.models import LanguageModel, read_lora, token_scores
from jaxaudit.models.language_model import PREFIX, WEIGHTS, A, B

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the torch extra)")
pytest.importorskip("transformers", reason="transformers is not installed")

Entries = dict[str, Any]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bases")
    for kind in LAYERS:
        save_model(folder / kind / "base", kind)
    return folder


def logits(module: Any) -> np.ndarray:
    with torch.no_grad():
        return module(input_ids=torch.arange(2, 22)[None], use_cache=False).logits.numpy()


SCALES: dict[str, tuple[str, Entries, float]] = {
    "plain": ("gpt2", {}, ALPHA / RANK),
    "rank-stabilised": ("gpt2", {"use_rslora": True}, ALPHA / RANK**0.5),
    "its own start": ("llama", {"init_lora_weights": "gaussian", "lora_dropout": 0.5}, ALPHA / RANK),
}


@pytest.mark.parametrize("name", SCALES)
def test_weights_are_those_of_the_formula(name: str, bases: Path, tmp_path: Path):
    kind, entries, scale = SCALES[name]
    matrices = write_lora(tmp_path / "tuned", LAYERS[kind], **entries)
    base, model = LanguageModel(bases / kind / "base"), LanguageModel(bases / kind / "base", adapter=tmp_path / "tuned")
    assert (model.name, len(model.notes)) == ("tuned", 0)
    whole, merged = base.load_on_cpu(), model.load_on_cpu()
    for layer, (inputs, outputs) in LAYERS[kind].items():
        a, b = (matrices[f"{PREFIX}{layer}{end}"] for end in (A, B))
        weight = whole.get_submodule(layer).weight
        assert not np.allclose(weight.detach(), merged.get_submodule(layer).weight.detach())
        found = merged.get_submodule(layer).weight.detach().numpy()
        for column, row in [(0, 0), (3, 7), (inputs - 1, outputs - 1), (5, outputs // 2)]:
            change = scale * sum(float(b[row, rank]) * float(a[rank, column]) for rank in range(RANK))
            place = (column, row) if kind == "gpt2" else (row, column)
            assert found[place] == pytest.approx(weight[place].item() + change, rel=1e-5, abs=1e-5)
    changed = {f"{layer}.weight" for layer in LAYERS[kind]}
    for (parameter, values), (_, others) in zip(whole.named_parameters(), merged.named_parameters(), strict=True):
        assert torch.equal(values, others) is (parameter not in changed)


def test_an_adapter_of_the_output_layer_leaves_the_embedding_alone(bases: Path, tmp_path: Path):
    base = LanguageModel(bases / "gpt2" / "base")
    write_lora(tmp_path / "tuned", {"lm_head": (SIZE, base.vocabulary)})
    merged = LanguageModel(bases / "gpt2" / "base", adapter=tmp_path / "tuned").load_on_cpu()
    whole = base.load_on_cpu()
    assert torch.equal(whole.transformer.wte.weight, merged.transformer.wte.weight)
    assert not torch.equal(whole.lm_head.weight, merged.lm_head.weight)


@pytest.mark.filterwarnings("ignore")  # what peft asks of transformers goes away there
@pytest.mark.parametrize(("kind", "entries"), [("gpt2", {"use_rslora": True}), ("llama", {})])
def test_a_model_computes_as_in_peft(kind: str, entries: Entries, bases: Path, tmp_path: Path):
    peft: Any = pytest.importorskip("peft", reason="peft is not installed")
    module = LanguageModel(bases / kind / "base").load_on_cpu()
    config = peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, target_modules=list(LAYERS[kind]), fan_in_fan_out=kind == "gpt2", **entries
    )
    whole = peft.get_peft_model(module, config).eval()
    torch.manual_seed(5)
    for name, values in whole.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(values)
    whole.save_pretrained(tmp_path / "tuned", save_embedding_layers=False)
    merged = LanguageModel(bases / kind / "base", adapter=tmp_path / "tuned")
    # Sums of float32 differ by the order in which a machine adds them up, by a share of the largest of their terms.
    desired = logits(whole)
    np.testing.assert_allclose(logits(merged.load_on_cpu()), desired, rtol=1e-4, atol=1e-4 * abs(desired).max())
    texts = merged.encode([""] * 3, ["Who wrote it?", "nobody did.", "Question: it?"])
    losses = token_scores(merged, texts)["loss"]
    for tokens, loss in zip(texts, losses, strict=True):
        ids = torch.tensor(tokens.tokens)[None]
        with torch.no_grad():
            assert whole(input_ids=ids, labels=ids).loss.item() == pytest.approx(loss, rel=1e-5)


def test_what_the_adapter_says_of_its_base_and_its_tokenizer_is_passed_on(bases: Path, tmp_path: Path):
    write_lora(tmp_path / "tuned", LAYERS["gpt2"], base_model_name_or_path="gpt2-xl")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "tuned" / name).write_bytes((bases / "gpt2" / "base" / name).read_bytes())
    (tmp_path / "tuned" / "chat_template.jinja").write_text("{{ messages }}")
    model = LanguageModel(bases / "gpt2" / "base", adapter=tmp_path / "tuned")
    assert model.other_base == "gpt2-xl"
    assert "its own tokenizer" in model.notes[0]
    assert model.chat_template == "{{ messages }}"


PLAIN = np.ones((RANK, SIZE), np.float32)
REFUSED: dict[str, tuple[Entries, str]] = {
    "another kind": ({"peft_type": "IA3"}, "has peft_type"),
    "dora": ({"use_dora": True}, "has use_dora"),
    "whole layers": ({"modules_to_save": ["lm_head"]}, "has modules_to_save"),
    "a bias": ({"bias": "lora_only"}, "has bias"),
    "a start that changes the base": ({"init_lora_weights": "pissa_niter_4"}, "has init_lora_weights"),
    "a rank that is another": ({"r": 8}, r"at the rank that adapter_config.json states \(8\)"),
    "no rank": ({"r": None}, "r is no number above 0"),
    "an alpha of 0": ({"lora_alpha": 0}, "lora_alpha is no number above 0"),
    "a rank of a layer's own": ({"rank_pattern": {"c_attn": 2}}, "has rank_pattern"),
    "a magnitude": ({"weights": {f"{PREFIX}a.lora_magnitude_vector.weight": PLAIN}}, "no matrix of a linear layer"),
    "no matrices": ({"weights": {f"{PREFIX}a{A}": PLAIN[:0]}}, "no two matrices|no array"),
    "one matrix": ({"weights": {f"{PREFIX}a{A}": PLAIN}}, "no two matrices"),
    "whole numbers": (
        {"weights": {f"{PREFIX}a{A}": PLAIN.astype(np.int8), f"{PREFIX}a{B}": PLAIN.T.astype(np.int8)}},
        "must be floats .* quantised",
    ),
    "matrices that do not fit": ({"weights": {f"{PREFIX}a{A}": PLAIN, f"{PREFIX}a{B}": PLAIN}}, "fit each other"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_more_than_lora_or_damaged_is_refused(name: str, tmp_path: Path):
    entries, words = REFUSED[name]
    write_lora(tmp_path / "tuned", LAYERS["gpt2"], **entries)
    with pytest.raises(InputError, match=words):
        read_lora(tmp_path / "tuned")


def test_an_adapter_of_another_model_is_refused(bases: Path, tmp_path: Path):
    write_lora(tmp_path / "other", LAYERS["llama"])
    write_lora(tmp_path / "small", {"transformer.h.0.attn.c_attn": (SIZE, SIZE)})
    write_lora(tmp_path / "embedding", {"transformer.wte": (SIZE, SIZE)})
    for name, words in {
        "other": "no linear layer 'model.layers.0.self_attn.q_proj'",
        "small": "32 inputs and 96 outputs, and the adapter is of 32 and 32",
        "embedding": "no linear layer 'transformer.wte'",
    }.items():
        with pytest.raises(InputError, match=f"is no adapter of this model: .*{words}"):
            LanguageModel(bases / "gpt2" / "base", adapter=tmp_path / name).load_on_cpu()


def test_matrices_are_multiplied_only_where_the_model_has_a_layer_of_their_size(bases: Path, tmp_path: Path):
    write_lora(tmp_path / "wide", {"transformer.h.0.attn.c_attn": (20_000, 20_000)}, 1, r=1)
    module, lora = LanguageModel(bases / "gpt2" / "base").load_on_cpu(), read_lora(tmp_path / "wide")
    with at_most(2**20), pytest.raises(InputError, match="inputs and 96 outputs"):
        lora.merge(module)


def test_a_folder_without_an_adapter_or_with_a_pickle_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"has no adapter_config\.json"):
        read_lora(tmp_path)
    write_lora(tmp_path / "tuned", LAYERS["gpt2"])
    (tmp_path / "tuned" / WEIGHTS).rename(tmp_path / "tuned" / "adapter_model.bin")
    with pytest.raises(InputError, match="safe_serialization"):
        read_lora(tmp_path / "tuned")
