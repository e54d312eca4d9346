"""Folders of language models and adapters, and files of texts, that ask for more than they may."""

import json
import random
import struct
from typing import Any

import numpy as np

from fuzz.asked_of_models import (
    ADAPTER,
    ADAPTER_CONFIG,
    CONFIG,
    MODEL,
    OWN_CODE,
    PICKLE,
    TEMPLATES,
    TEXTS,
    TOKENIZER_CONFIG,
)
from fuzz.claims import entries_of
from fuzz.places import Hole, Link, Tree


def hostile(tree: Tree, choose: random.Random) -> str | None:
    """One of these, in a folder with a language model, an adapter or texts for `scores lm`."""
    ways = []
    if f"{MODEL}/config.json" in tree:
        ways += [_model, _model, _tokenizer, _files]
    if f"{MODEL}/chat_template.jinja" in tree:
        ways += [_template, _template, _template]
    if f"{ADAPTER}/adapter_config.json" in tree:
        ways = [_adapter, _adapter, _matrices, *ways[-1:]]
    if "query.jsonl" in tree:
        ways += [_texts]
    return choose.choice(ways)(tree, choose) if ways else None


def _entry(tree: Tree, name: str, entries: dict[str, tuple[Any, ...]], choose: random.Random) -> str | None:
    said = entries_of(tree, name)
    if said is None:
        return None
    key = choose.choice(list(entries))
    said[key] = choose.choice(entries[key])
    tree[name] = json.dumps(said).encode()
    return f"{name}: {key} {str(said[key])[:60]!r}"


def _model(tree: Tree, choose: random.Random) -> str | None:
    return _entry(tree, f"{MODEL}/config.json", CONFIG, choose)


def _adapter(tree: Tree, choose: random.Random) -> str | None:
    return _entry(tree, f"{ADAPTER}/adapter_config.json", ADAPTER_CONFIG, choose)


def _tokenizer(tree: Tree, choose: random.Random) -> str | None:
    return _entry(tree, f"{MODEL}/tokenizer_config.json", TOKENIZER_CONFIG, choose)


def _template(tree: Tree, choose: random.Random) -> str | None:
    template = choose.choice(TEMPLATES)
    if isinstance(template, str) and choose.random() < 0.5:
        tree[f"{MODEL}/chat_template.jinja"] = template.encode("utf-8", "surrogatepass")
        return f"chat_template.jinja: {template[:60]!r}"
    tree.pop(f"{MODEL}/chat_template.jinja", None)
    return _entry(tree, f"{MODEL}/tokenizer_config.json", {"chat_template": (template,)}, choose)


def _files(tree: Tree, choose: random.Random) -> str | None:
    """Another file beside those of a model, or in place of one."""
    weights = tree.get(f"{MODEL}/model.safetensors", b"")
    ways: tuple[tuple[str, Any], ...] = (
        ("pytorch_model.bin", PICKLE),
        ("training_args.bin", PICKLE),
        ("model.safetensors", PICKLE),
        ("model.safetensors.index.json", json.dumps({"weight_map": {"a": "../../outside/kept"}}).encode()),
        (
            "model.safetensors.index.json",
            json.dumps({"weight_map": {f"{k}": f"{k}.safetensors" for k in range(10**5)}}),
        ),
        ("model.safetensors", Hole(struct.pack("<Q", 64) + b"{", 2**33)),
        ("model.safetensors", Link("{outside}/kept")),
        ("tokenizer.json", Hole(b'{"version": "1.0", "added_tokens": [', 2**31)),
        ("config.json", Hole(b'{"model_type": "', 2**30)),
        ("chat_template.jinja", Hole(b"{{ x }}", 2**30)),
        ("chat_template.jinja", b"\xff\xfe"),
        ("additional_chat_templates/default.jinja", b"{{ 1 / 0 }}"),
        (
            "special_tokens_map.json",
            b'{"eos_token": {"content": "e"}, "auto_map": {"AutoTokenizer": "modeling_own.Model"}}',
        ),
        ("added_tokens.json", json.dumps({f"<{row}>": row for row in range(300, 60_000)}).encode()),
        ("added_tokens.json", b'{"Who": -1}'),
        ("vocab.json", b'{"a": 0}'),
        ("merges.txt", b"a b\n" * 10**5),
        ("tokenizer.model", PICKLE),
        ("sentencepiece.bpe.model", b"\x0a\x05"),
        ("generation_config.json", b'{"max_length": 1e999, "custom_generate": "modeling_own"}'),
        ("custom_generate/generate.py", OWN_CODE.encode()),
        ("tokenization_own.py", OWN_CODE.encode()),
        ("__init__.py", OWN_CODE.encode()),
        ("adapter_config.json", b'{"base_model_name_or_path": "/etc/passwd", "peft_type": "LORA"}'),
        ("adapter_model.bin", PICKLE),
        ("processor_config.json", b'{"auto_map": {"AutoProcessor": "modeling_own.Model"}}'),
    )
    name, content = choose.choice(ways)
    tree[f"{MODEL}/{name}"] = content.encode() if isinstance(content, str) else content
    if name == "pytorch_model.bin" or (name == "model.safetensors.index.json" and weights):
        tree.pop(f"{MODEL}/model.safetensors", None)
    return f"{MODEL}/{name}: {str(content)[:60]}"


def _matrices(tree: Tree, choose: random.Random) -> str | None:
    """One of an adapter's matrices with other numbers, of another type or shape, or under another name."""
    from safetensors.numpy import load, save

    name = f"{ADAPTER}/adapter_model.safetensors"
    content = tree.get(name)
    try:
        arrays = load(content) if isinstance(content, bytes) else {}
    except Exception:  # damaged before
        return None
    if not arrays:
        return None
    key = choose.choice(sorted(arrays))
    array = arrays[key]
    match choose.randrange(9):
        case 0:
            arrays[key], said = (
                np.full_like(array, choose.choice((np.nan, np.inf, -np.inf, 3e38))),
                "not finite, or huge",
            )
        case 1:
            arrays[key], said = array.T.copy(), "turned round"
        case 2:
            arrays[key], said = array[:, :0].copy(), "empty"
        case 3:
            arrays[key], said = array[None].copy(), "of three dimensions"
        case 4:
            arrays[key], said = (
                array.astype(choose.choice((np.int64, np.uint8, np.bool_, np.float64, np.float16))),
                "cast",
            )
        case 5:
            arrays[f"{key}{choose.choice(('2', '.x', chr(0), 'n' * 5000))}"], said = arrays.pop(key), "renamed"
        case 6:
            del arrays[key]
            said = "gone"
        case 7:
            wide = choose.choice((10**5, 10**6))
            arrays[key], said = np.zeros((array.shape[0], wide) if "lora_A" in key else (wide, array.shape[1])), "wide"
        case _:
            arrays["base_model.model.lm_head.weight"], said = array, "joined by a layer of its own"
    tree[name] = save(arrays)
    return f"{name}: {key} {said}"


def _texts(tree: Tree, choose: random.Random) -> str | None:
    """A line of texts that is odd, or the whole file."""
    name = choose.choice(("query.jsonl", "holdout.jsonl"))
    content = tree.get(name)
    if not isinstance(content, bytes):
        return None
    lines, line = content.split(b"\n"), choose.choice(TEXTS)
    match choose.randrange(8):
        case 0:
            tree[name] = b"\xef\xbb\xbf" + content
            return f"{name}: a mark of the order of bytes before it"
        case 1:
            tree[name] = content.replace(b"\n", b"\r\n")
            return f"{name}: lines end with CR and LF"
        case 2:
            tree[name] = Hole(b'{"question": "', 100 << 20)
            return f"{name}: a line of 100 MiB"
        case 3:
            tree[name] = b"[" + b",".join(filter(None, lines)) + b"]"
            return f"{name}: one array"
        case 4:
            tree[name] = content * choose.choice((2, 300))
            return f"{name}: again and again"
        case _:
            lines.insert(choose.randrange(len(lines)), line)
            tree[name] = b"\n".join(lines)
            return f"{name}: also the line {line[:60]!r}"
