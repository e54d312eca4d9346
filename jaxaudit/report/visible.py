"""Text from files and folders, made safe to show."""


def visible(text: str) -> str:
    r"""`text` on one line, with every control character spelled out.

    Names come from files, columns and folders. Printed raw, an escape sequence in one could recolour or rewrite what
    a terminal shows, and a line break could pass for a line of the program's own.

    >>> print(visible("evil\x1b[31m\nname"))
    evil\x1b[31m\nname
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
