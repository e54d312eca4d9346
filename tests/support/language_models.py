"""Tiny causal language models, their adapters and tokenizers of transformers, as `save_pretrained` saves them."""

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from jaxaudit.data import safetensors_bytes
from jaxaudit.models.language_model import PREFIX, WEIGHTS, A, B

SIZE = 32
POSITIONS = 96
END = "<end>"
LAYERS = {
    "gpt2": {"transformer.h.0.attn.c_attn": (SIZE, 3 * SIZE), "transformer.h.1.mlp.c_proj": (4 * SIZE, SIZE)},
    "llama": {"model.layers.0.self_attn.q_proj": (SIZE, SIZE), "model.layers.1.mlp.down_proj": (SIZE, SIZE)},
}
RANK, ALPHA = 4, 6.0


def save_tokenizer(folder: Path, begin: bool = False, behind: int = 0) -> int:
    """A byte-level tokenizer with some merges, and the number of its tokens.

    Args:
        folder: where it goes.
        begin: whether each text begins with a special token.
        behind: how many special tokens the tokenizer puts behind each text.
    """
    tokenizers: Any = import_module("tokenizers")
    transformers: Any = import_module("transformers")
    bytes_of = import_module("tokenizers.pre_tokenizers").ByteLevel
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer, made.decoder = bytes_of(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=[END], initial_alphabet=bytes_of.alphabet(), show_progress=False
    )
    made.train_from_iterator(["Question: Who wrote it?\nAnswer: nobody did."] * 3, trainer)
    if begin or behind:
        single = " ".join([*[END] * begin, "$A", *[END] * behind])
        made.post_processor = tokenizers.processors.TemplateProcessing(single=single, special_tokens=[(END, 0)])
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END)
    whole.save_pretrained(folder)
    return len(whole)


def save_model(
    folder: Path, kind: str = "gpt2", seed: int = 0, begin: bool = False, behind: int = 0, **how: Any
) -> Any:
    """The module, whose folder also has a tokenizer; its outputs are far from uniform."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    vocabulary = save_tokenizer(folder, begin, behind)
    torch.manual_seed(seed)
    common: dict[str, Any] = {"vocab_size": vocabulary, "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 0}
    if kind == "gpt2":
        config = transformers.GPT2Config(n_positions=POSITIONS, n_embd=SIZE, n_layer=2, n_head=2, **common)
        module = transformers.GPT2LMHeadModel(config)
    else:
        sizes = {"hidden_size": SIZE, "intermediate_size": SIZE, "num_hidden_layers": 2, "num_attention_heads": 2}
        module = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(max_position_embeddings=POSITIONS, **sizes, **common)
        )
    bars = transformers.utils.logging
    bars.disable_progress_bar()
    module.save_pretrained(folder, **how)
    bars.enable_progress_bar()
    return module.eval()


def write_lines(path: Path | str, records: Iterable[Mapping[str, Any]]) -> Path:
    path = Path(path)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    return path


def write_lora(
    folder: Path,
    layers: dict[str, tuple[int, int]],
    rank: int = RANK,
    weights: dict[str, np.ndarray] | None = None,
    **entries: Any,
) -> dict[str, np.ndarray]:
    """An adapter with random matrices of these layers (inputs, outputs), as peft writes it; returns its matrices."""
    rng = np.random.default_rng(3)
    matrices = {}
    for name, (inputs, outputs) in layers.items():
        matrices[f"{PREFIX}{name}{A}"] = rng.normal(size=(rank, inputs)).astype(np.float32)
        matrices[f"{PREFIX}{name}{B}"] = rng.normal(size=(outputs, rank)).astype(np.float32)
    usual = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "someone/base",
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": sorted({name.rpartition(".")[2] for name in layers}),
        "bias": "none",
        "inference_mode": True,
    }
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(usual | entries))
    (folder / WEIGHTS).write_bytes(safetensors_bytes(matrices if weights is None else weights))
    return matrices
