"""Folders of language models that ask for more than they may: code, memory, time, other files."""

import json
import random
from typing import Any

from fuzz.places import Hole, Link, Tree
from fuzz.readers import SECRET

MODEL = "target"
OWN_CODE = "import fuzz_canary\n\nModel = fuzz_canary.Thing\n"
PICKLE = b"\x80\x02cfuzz_canary\nThing\nq\x00."
SIZES = (2**24, 10**9, 2**63, 2**20, 0, -1, 1.5, True, None, "12", [], {})
AUTO = ({"AutoModelForCausalLM": "modeling_own.Model"}, {"AutoTokenizer": ["modeling_own.Model", None]}, "modeling_own")
PATHS = ("/etc/passwd", "../outside/kept", "http://127.0.0.1:9/x", 7, "a" * 10**6, "\ud800")
ASKED: dict[str, dict[str, tuple[Any, ...]]] = {
    f"{MODEL}/config.json": {
        **dict.fromkeys(("n_embd", "n_layer", "n_head", "n_positions", "vocab_size", "num_labels"), SIZES),
        "model_type": ("llama", "bert", "gpt2\0", "../x", "timm_wrapper", "fuzz_canary", None, 7),
        "architectures": (["LlamaForCausalLM"], ["os.system"], [], ["GPT2LMHeadModel"] * 10**5),
        "auto_map": AUTO,
        "_name_or_path": PATHS,
        "quantization_config": ({"quant_method": "bitsandbytes"}, {"quant_method": "fuzz_canary"}),
        "activation_function": ("fuzz_canary.Thing", "", None),
        "_attn_implementation": ("flash_attention_2", "kernels-community/x", "modeling_own"),
        "id2label": ({str(row): "x" for row in range(200_000)}, {"0": SECRET}),
        "text_config": ({"vocab_size": 2**24, "model_type": "gpt2"}, {"model_type": "fuzz_canary"}),
    },
    f"{MODEL}/tokenizer_config.json": {
        "tokenizer_class": ("fuzz_canary.Thing", "LlamaTokenizer", "T5Tokenizer", None, []),
        "auto_map": AUTO,
        "added_tokens_decoder": ({str(row): {"content": f"<{row}>"} for row in range(50_000)}, {"x": 7}),
        "eos_token": ("", SECRET, "new" * 10**5, {"__type": "AddedToken", "content": "e"}),
        **dict.fromkeys(("tokenizer_file", "vocab_file"), PATHS),
    },
}
FILES: tuple[tuple[str, bytes | Hole | Link], ...] = (
    *((name, PICKLE) for name in ("pytorch_model.bin", "model.safetensors", "tokenizer.model", "adapter_model.bin")),
    ("model.safetensors.index.json", b'{"weight_map": {"a": "../../outside/kept"}}'),
    ("model.safetensors", Hole((64).to_bytes(8, "little") + b"{", 2**33)),
    ("model.safetensors", Link("{outside}/kept")),
    ("tokenizer.json", Hole(b'{"version": "1.0", "added_tokens": [', 2**31)),
    ("chat_template.jinja", Hole(b"{{ x }}", 2**30)),
    *((name, OWN_CODE.encode()) for name in ("custom_generate/generate.py", "tokenization_own.py", "__init__.py")),
)
"""Beside those of a model, or in place of one."""


def hostile(tree: Tree, choose: random.Random) -> str | None:
    """One of these, in a folder with a language model."""
    names = [name for name in ASKED if name in tree]
    if not names:
        return None
    name = choose.choice([*names, ""])
    if not name:
        file, content = choose.choice(FILES)
        tree[f"{MODEL}/{file}"] = content
        return f"{MODEL}/{file}: {str(content)[:60]}"
    content = tree[name]
    try:
        said: Any = json.loads(content) if isinstance(content, bytes) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    key = choose.choice(list(ASKED[name]))
    said[key] = choose.choice(ASKED[name][key])
    tree[name] = json.dumps(said).encode()
    return f"{name}: {key} {str(said[key])[:60]!r}"
