"""`docs/api.md` holds every public name, with the signature and docstring it has in the source."""

from inspect import isclass, isfunction

import pytest

import jaxaudit
from docs import api
from jaxaudit import attacks, kernels, learners, metrics, models, unlearning


def test_reference_is_up_to_date():
    assert api.REFERENCE.read_text(encoding="utf-8") == api.page(), "run python -m docs.api"


@pytest.mark.parametrize(
    "package", [jaxaudit, attacks, kernels, learners, metrics, models, unlearning], ids=lambda one: one.__name__
)
def test_every_public_name_has_an_entry(package):
    page = api.page()
    shown = [getattr(package, name) for name in package.__all__ if f"### `{name}`\n" in page]
    # Aliases of types have no entry: signatures say them.
    wanted = [one for name in package.__all__ if isfunction(one := getattr(package, name)) or isclass(one)]
    assert [one.__name__ for one in wanted if one not in shown] == []


def test_names_are_those_of_the_stubs_even_where_a_module_is_called_so():
    for package in (jaxaudit, kernels, metrics):
        for name in package.__all__:
            getattr(package, name)
    from jaxaudit.metrics import ema, pdtp
    from jaxaudit.metrics.efficacy import efficacy
    from jaxaudit.metrics.pdtp import BINS

    assert BINS
    assert all(isfunction(one) for one in (ema, pdtp, metrics.ema, metrics.pdtp))
    assert metrics.efficacy is efficacy


def test_docstrings_become_markdown():
    docstring = """One line.

Args:
    first: what it is,
        and more.
    second, third: others.

Raises:
    InputError: never.

>>> 1 + 1
2
"""
    assert (
        api.markdown(docstring)
        == """One line.

**Args**

- `first`: what it is,
  and more.
- `second, third`: others.

**Raises**

- `InputError`: never.

```python
>>> 1 + 1
2
```"""
    )


def test_links_tell_names_apart_that_differ_in_capitals():
    page = api.page()
    assert "[PDTP](#pdtp), " in page
    assert "[pdtp](#pdtp-1), " in page
