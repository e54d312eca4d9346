"""The numbers of tests in the JSON of `ks`."""

from typing import Any


def details_of(target: dict[str, Any], kind: str = "use") -> list[dict[str, Any]]:
    """The details of this kind, in the order of the tests."""
    return [test["details"] for test in target["tests"] if test["details"] and test["details"]["kind"] == kind]
