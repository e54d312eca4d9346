"""Names as people, and people with bad intentions, give them: of files, columns, classes, sets and options."""

import random

ODD = (
    *("", " ", "-x", "--help", "%s%n", "\x1b[31mred", "a\nb", "a\0b", "\u202egpj.exe", "\udcff", "日本語", "١٢٣"),
    *("<script>alert(1)</script>", "]]>--><svg/onload=alert(1)>", "=cmd|' /C calc'!A0", "{{ 7*7 }}", "$x^{$"),
    *("x}}\n@article{own, title={x}}", "a: b\n---\n- c #d", "x\n\n# Heading\n\n| a | b |\n|---|---|", "`</code>"),
    "[x](javascript:alert(1)) ![x](http://example.org/x) <http://example.org> www.example.org",
    *("../../etc/passwd", "~no-such-user/x", "__class__", "C:\\x", "n" * 5000, "/".join("d" * 3000)),
    *("1e999", "nan", "-1", "9" * 400, "9" * 5000, "18446744073709551616", "1_000", "0x10"),
)
SUFFIX = ".name"
"""Of a file that stands for what a person types: only its words are changed."""
PIECES = (*"@:+[]%-,./~ ", "[:", ":]", "all", "train", "test", "10%", "-5", "[5:2]", "@@")


def odd(choose: random.Random) -> str:
    return choose.choice(ODD)


def file_name(choose: random.Random, suffix: str = "") -> str:
    name = odd(choose).replace("/", "_").replace("\0", "_")
    name = name.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "surrogateescape") + suffix
    return name if name not in ("", ".", "..") else "_"


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def mangled(data: bytes, choose: random.Random) -> tuple[bytes, str]:
    """A name with pieces of its language, or odd ones, in other places."""
    text = text_of(data)
    for _ in range(choose.randint(1, 3)):
        start = choose.randint(0, len(text))
        end = min(len(text), start + choose.choice((0, 0, 1, 3, 8)))
        piece = choose.choice(PIECES) if choose.random() < 0.7 else odd(choose)
        text = text[:start] + piece + text[end:]
    return text.encode("utf-8", "surrogatepass"), f"{text[:90]!r}"
