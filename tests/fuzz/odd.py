"""What stands in files of strangers where something else should."""

import json

SECRET = "secret735173517"
"""Stands in the cells of tables, which no message may show."""
SECRET_NUMBER = 735173517
CANARY = "fuzz_canary.Thing"
"""Of a module that nothing may import."""
OWN_CODE = "from fuzz_canary import *\n"
PICKLE = b"\x80\x02cfuzz_canary\nThing\nq\x00."
NAMES = (
    *("", " ", "-x", "--help", "%s%n", "\x1b[31mred", "a\nb", "a\0b", "\u202egpj.exe", "\udcff", "日本語", "١٢٣"),
    *("<script>alert(1)</script>", "]]>--><svg/onload=alert(1)>", "=cmd|' /C calc'!A0", "{{ 7*7 }}", "$x^{$"),
    *("x}}\n@article{own, title={x}}", "a: b\n---\n- c #d", "[x](javascript:alert(1)) ![x](http://example.org/x)"),
    *("../../etc/passwd", "~no-such-user/x", "__class__", "C:\\x", "n" * 5000, "/".join("d" * 3000)),
    *("1e999", "nan", "-1", "9" * 5000, "18446744073709551616", "1_000", "0x10"),
)
"""As people give them, and people with bad intentions: of files, columns, classes, sets and options."""
CELLS = ("", " ", '"', '""', '"\n"', "nan", "inf", "-inf", "1e999", "1_000", "١٢", "0x10", "=cmd|' /C calc'!A0", "1,5")
CELLS += ("\x1b[31m", "\0", "\u202e", "é", "-0", "?", "NA", "1e-320", "9" * 400, "c" * 100_000, "True")
CODINGS = ("utf-16", "utf-8-sig", "utf-32", "utf-7", "cp037", "latin-1")
PIECES = (*"@:+[]%-,./~ ", "[:", ":]", "all", "train", "test", "10%", "-5", "[5:2]", "@@")
"""Of the language of names."""
NUMERALS = (b"0", b"-1", b"1e308", b"1e999", b"nan", b"NaN", b"1.5", b"2147483648", b"9" * 400, b"9" * 5000, b"true")
INTEGERS = (0, 1, 7, 127, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63)

SHAPES = (
    *("(12, 4)", "(20,)", "(0,)", "(-1,)", "(None,)", "(1e9,)", "(False,)", "((12, 4),)", f"({10**30},)"),
    *("(True, 4)", "('12', 4)", f"({2**62}, 4)", "(12, 0)", f"({2**32}, 0)", f"(0, {2**62})", f"({'1, ' * 70})"),
    *("()", "None", "[12, 4]", f"({2**62}, {2**62})", "(1000000, 1000000)", "(" * 200 + ")" * 200),
)
DTYPES = (
    *(f"'{each}'" for each in ("<f4", "<f8", ">f4", "<f2", "<f16", "<c16", "|b1", "<u8", "<M8[s]", "|O", "|V8", "|S0")),
    *("'<U999999999'", "'|S2147483647'", "'<i8,<i8'", f"'{'<f4,' * 3000}'", f"'{CANARY}'"),
    *("[('a', '<i4')]", "[('a', '|O')]", "('<f4', (2, 3))", "{'names': []}", "None", "7", "b'<f4'"),
)
HEADERS = ("__import__('fuzz_canary')", "[" * 5000, "{" * 90, "lambda: 0", "'''", "\0", "\\")
MEMBERS = ("x", "y", "../x", "/etc/x", "x_train", "class_names", "0", "n" * 60_000, *NAMES)

FEATURE = "tensorflow_datasets.core.features."
IMAGE = {"image": {"pythonClassName": CANARY}}
CONTAINER = f"{FEATURE}features_dict.FeaturesDict"
ALIKE = (("pythonClassName", f"tensorflow_datasets.x.{CANARY}"), ("type", f"tensorflow_datasets_{CANARY}"))
HOSTILE_FEATURES = (
    {"pythonClassName": CANARY},
    {"type": CANARY, "content": "{}"},
    {"pythonClassName": CONTAINER, "jsonFeature": {"json": json.dumps(IMAGE)}},
    {"type": CONTAINER, "proto_cls": "tensorflow_datasets.FeaturesDict", "content": json.dumps({"features": IMAGE})},
    {"type": CONTAINER, "content": json.dumps({"image": {"type": CANARY, "content": "{}"}})},
    {"pythonClassName": CONTAINER, "featuresDict": {"features": IMAGE}},
    {"pythonClassName": "os.system", "jsonFeature": {"json": '"true"'}},
    # Names that begin as those of TensorFlow Datasets do.
    *({"featuresDict": {"features": {"image": {key: name}}}, "pythonClassName": CONTAINER} for key, name in ALIKE),
    {"pythonClassName": f"{FEATURE}sequence_feature.Sequence", "sequence": {"feature": {"python_class_name": CANARY}}},
    {"pythonClassName": f"{FEATURE}image_feature.Image", "image": {"shape": {"dimensions": ["-1"]}, "dtype": CANARY}},
)
MARK = "marked place"
DEEPEST = 100
MARKED = (
    *("NaN", "-" + "9" * 5000, "1e400", '{"a": 1, "a": 2}', '"\\ud800"', "", f"[{'0,' * 3_000_000}0]"),
    *("[" * DEEPEST + "]" * DEEPEST, "[" * 100_000),
)
"""What no value of Python is written as, in place of the mark."""
NUMBERS = (0, -1, 1, 2**31, 2**53, 2**63, 10**30, 1e308, -1e308, 1e-320, -0.0, 0.5, 1.5, 10**19)
VALUES = (None, True, False, "", [], {}, [[]], [None], "F64", "F8_E4M3", "infinity", MARK, MARK, MARK)
EXTENTS = ([2**40, 0], [0], [2**63], [-1], [1] * 70, [3.0], [0, 2**62, 2**62], [0, 2**40], [48, 0], [-4, 4], [1, 49])
CODE = ("fuzz_canary:Thing", "net.py:Net", "modeling_own.Model", CANARY, "/etc/passwd", *HOSTILE_FEATURES)
AUTO = ({"AutoModelForCausalLM": "modeling_own.Model"}, {"AutoTokenizer": ["modeling_own.Model", None]}, "modeling_own")
ENTRIES = {
    "auto_map": AUTO * 3,
    "quantization_config": ({"quant_method": "bitsandbytes"}, {"quant_method": "fuzz_canary"}),
    "_attn_implementation": ("flash_attention_2", "kernels-community/x", "modeling_own"),
    "text_config": ({"vocab_size": 2**24, "model_type": "gpt2"}, {"model_type": "fuzz_canary"}),
    **dict.fromkeys(("n_embd", "n_layer", "n_head", "vocab_size"), (2**20, 2**24, 10**9, 2**63, 0, -1)),
    **dict.fromkeys(("model_type", "tokenizer_class"), ("llama", "LlamaTokenizer", "gpt2\0", "../x", CANARY)),
    "tokenizer_file": ("/etc/passwd", "../outside/kept", "http://127.0.0.1:9/x", "a" * 10**6),
    "added_tokens_decoder": ({str(row): {"content": f"<{row}>"} for row in range(50_000)}, {"x": 7}),
}
"""By which folders of language models ask for code, memory, time or other files."""
