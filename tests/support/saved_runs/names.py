"""A name from data that would do harm where it is not taken for text."""

HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> $x^$ \u202egpj.exe \x1b[31m\x00 {{ 7*7 }} &amp; ש日本"
)
"""All a name can try at once: tags, quotes, attributes, mathematics, right-to-left marks, control characters."""
