"""Calls a network's factory by the names of its parameters."""

import inspect
import math
from functools import partial
from typing import Any, NamedTuple

from flax import linen

from jaxaudit.errors import InputError

RNGS = "rngs"
SHAPE = ("input_shape", "shape")
CLASSES = ("classes", "num_classes", "n_classes")
OUTPUTS = ("out_features",)
SIZE = ("in_features", "input_dim", "features_in", "num_features")
CHANNELS = ("in_channels",)
GIVEN = (RNGS, *SHAPE, *CLASSES)
"""Parameter names with a single meaning. Other parameters keep their default, if they have one."""

FORMS = (
    "understood are factory(input_shape, classes, rngs=...), factory(rngs) and factory(), and a function or class with "
    f"parameters named {', '.join((*CLASSES[1:], *OUTPUTS))} (number of outputs), {', '.join(SIZE)} (numbers per "
    f"record) or {', '.join(CHANNELS)}"
)


RANDOM_NUMBERS = object()
"""Stands in a `Call` for random numbers, which are not known yet."""


class Call(NamedTuple):
    """A call of a factory, with `RANDOM_NUMBERS` in place of random numbers: its positional arguments, for parameters
    that cannot be passed by name, its keyword arguments, and the call as text, for messages.
    """

    positional: tuple[Any, ...]
    named: dict[str, Any]
    text: str

    @property
    def seeded(self) -> bool:
        """Whether the factory takes random numbers, so that models may start from different weights."""
        return any(value is RANDOM_NUMBERS for value in (*self.positional, *self.named.values()))

    def made(self, factory: Any, rngs: Any) -> Any:
        """Calls the factory with these random numbers and returns the module."""

        def settled(value: Any) -> Any:
            return rngs if value is RANDOM_NUMBERS else value

        return factory(*map(settled, self.positional), **{name: settled(each) for name, each in self.named.items()})


def plan_call(factory: Any, name: str, input_shape: tuple[int, ...], classes: int) -> Call:
    """The call of `factory` (a function, a class of modules, or a `functools.partial` of one) for records of this
    shape.

    One with arbitrary parameters is called as `factory(input_shape, classes, rngs=...)`; a parameter without a default
    that has an unknown name is refused.

    >>> def net(num_classes, width=64, *, rngs): ...
    >>> plan_call(net, "net", (28, 28, 1), 10).text
    'net(num_classes=10, rngs=...)'
    """
    known = {
        RNGS: RANDOM_NUMBERS,
        **dict.fromkeys(SHAPE, input_shape),
        **dict.fromkeys((*CLASSES, *OUTPUTS), classes),
        **dict.fromkeys(SIZE, math.prod(input_shape)),
        **{channels: input_shape[-1] for channels in CHANNELS if input_shape},
    }
    if _is_linen(factory):
        known.pop("num_features")  # a Linen module sees how many its inputs have; there it is a width
    parameters = _parameters(factory)
    kinds = [parameter.kind for parameter in parameters]
    open_ended = inspect.Parameter.VAR_KEYWORD in kinds
    own = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if inspect.Parameter.VAR_POSITIONAL in kinds and not own:
        return _call(name, (input_shape, classes), {RNGS: RANDOM_NUMBERS})
    unknown = [each.name for each in own if each.default is each.empty and each.name not in known]
    if unknown:
        raise InputError(
            f"the model factory {name} has the parameters ({', '.join(each.name for each in own)}), of which "
            f"{', '.join(unknown)} are unknown: {FORMS}. Give the others defaults, or write a function that does."
        )
    wanted = [each for each in own if each.default is each.empty or each.name in GIVEN]
    positional = tuple(known[each.name] for each in wanted if each.kind is each.POSITIONAL_ONLY)
    named = {each.name: known[each.name] for each in wanted if each.kind is not each.POSITIONAL_ONLY}
    # What takes any further name most likely hands them on to a module, which needs random numbers.
    return _call(name, positional, {**named, RNGS: RANDOM_NUMBERS} if open_ended else named)


def _call(name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Call:
    words = ["..." if value is RANDOM_NUMBERS else str(value) for value in positional]
    words += [f"{key}={'...' if value is RANDOM_NUMBERS else value}" for key, value in named.items()]
    return Call(positional, named, f"{name}({', '.join(words)})")


def _parameters(factory: Any) -> list[inspect.Parameter]:
    try:
        return list(_signature(factory).parameters.values())
    except ValueError:  # of code that is not Python
        return [inspect.Parameter("arguments", inspect.Parameter.VAR_POSITIONAL)]


def _signature(factory: Any) -> inspect.Signature:
    if isinstance(factory, partial):

        def stand_in() -> None: ...

        stand_in.__signature__ = _signature(factory.func)  # pyright: ignore[reportFunctionMemberAccess]
        return inspect.signature(partial(stand_in, *factory.args, **factory.keywords))
    if not isinstance(factory, type):
        return inspect.signature(factory)
    # Not of the class itself: NNX makes instances by a function of the metaclass, which takes anything.
    if factory.__init__ is object.__init__:
        return inspect.Signature()
    own = list(inspect.signature(factory.__init__).parameters.values())[1:]
    hidden = ("parent", "name") if _is_linen(factory) else ()
    return inspect.Signature([each for each in own if each.name not in hidden])


def _is_linen(factory: Any) -> bool:
    return isinstance(factory, type) and issubclass(factory, linen.Module)
