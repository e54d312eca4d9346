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
"""Stands in a `FactoryCall` for random numbers, which are not known yet."""


class FactoryCall(NamedTuple):
    """A call of a factory, with `RANDOM_NUMBERS` in place of random numbers: its positional arguments, for parameters
    that cannot be passed by name, its keyword arguments, and the call as text, for messages.
    """

    positional: tuple[Any, ...]
    keywords: dict[str, Any]
    text: str

    @property
    def seeded(self) -> bool:
        """Whether the factory takes random numbers, so that models may start from different weights."""
        return any(value is RANDOM_NUMBERS for value in (*self.positional, *self.keywords.values()))

    def build(self, factory: Any, rngs: Any) -> Any:
        """Calls the factory with these random numbers and returns the module."""

        def settled(value: Any) -> Any:
            return rngs if value is RANDOM_NUMBERS else value

        return factory(
            *map(settled, self.positional), **{name: settled(argument) for name, argument in self.keywords.items()}
        )


def plan_call(factory: Any, name: str, input_shape: tuple[int, ...], classes: int) -> FactoryCall:
    """The call of `factory` (a function, a class of modules, or a `functools.partial` of one) for records of this
    shape.

    One with arbitrary parameters is called as `factory(input_shape, classes, rngs=...)`; a parameter without a default
    that has an unknown name is refused.

    >>> def net(num_classes, width=64, *, rngs): ...
    >>> plan_call(net, "net", (28, 28, 1), 10).text
    'net(num_classes=10, rngs=...)'
    """
    values_by_name = {
        RNGS: RANDOM_NUMBERS,
        **dict.fromkeys(SHAPE, input_shape),
        **dict.fromkeys((*CLASSES, *OUTPUTS), classes),
        **dict.fromkeys(SIZE, math.prod(input_shape)),
        **{channels: input_shape[-1] for channels in CHANNELS if input_shape},
    }
    if _is_linen(factory):
        values_by_name.pop("num_features")  # a Linen module sees how many its inputs have; there it is a width
    parameters = _parameters(factory)
    kinds = [parameter.kind for parameter in parameters]
    open_ended = inspect.Parameter.VAR_KEYWORD in kinds
    named_parameters = [
        parameter for parameter in parameters if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if inspect.Parameter.VAR_POSITIONAL in kinds and not named_parameters:
        return _call(name, (input_shape, classes), {RNGS: RANDOM_NUMBERS})
    unknown = [
        parameter.name
        for parameter in named_parameters
        if parameter.default is parameter.empty and parameter.name not in values_by_name
    ]
    if unknown:
        raise InputError(
            f"the model factory {name} has the parameters "
            f"({', '.join(parameter.name for parameter in named_parameters)}), of which "
            f"{', '.join(unknown)} are unknown: {FORMS}. Give the others defaults, or write a function that does."
        )
    filled_parameters = [
        parameter for parameter in named_parameters if parameter.default is parameter.empty or parameter.name in GIVEN
    ]
    positional = tuple(
        values_by_name[parameter.name] for parameter in filled_parameters if parameter.kind is parameter.POSITIONAL_ONLY
    )
    keywords = {
        parameter.name: values_by_name[parameter.name]
        for parameter in filled_parameters
        if parameter.kind is not parameter.POSITIONAL_ONLY
    }
    # What takes any further name most likely hands them on to a module, which needs random numbers.
    return _call(name, positional, {**keywords, RNGS: RANDOM_NUMBERS} if open_ended else keywords)


def _call(name: str, positional: tuple[Any, ...], keywords: dict[str, Any]) -> FactoryCall:
    words = ["..." if value is RANDOM_NUMBERS else str(value) for value in positional]
    words += [f"{key}={'...' if value is RANDOM_NUMBERS else value}" for key, value in keywords.items()]
    return FactoryCall(positional, keywords, f"{name}({', '.join(words)})")


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
    init_parameters = list(inspect.signature(factory.__init__).parameters.values())[1:]
    hidden = ("parent", "name") if _is_linen(factory) else ()
    return inspect.Signature([parameter for parameter in init_parameters if parameter.name not in hidden])


def _is_linen(factory: Any) -> bool:
    return isinstance(factory, type) and issubclass(factory, linen.Module)
