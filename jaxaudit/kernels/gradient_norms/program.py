"""A function of parameters and one example as a flat list of operations, and what each value depends on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive


class Operation(NamedTuple):
    """One operation; `inputs` and `outputs` are places in the program's list of values."""

    primitive: Primitive
    params: dict[str, Any]
    context: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Carried(NamedTuple):
    """A value that a loop carries: places before the loop, at the start and the end of a step, and after the loop."""

    before: int
    start: int
    end: int
    after: int


class Sliced(NamedTuple):
    """A value with an axis of steps outside of a loop, and what a step sees or makes of it."""

    whole: int
    step: int


@dataclass(frozen=True, eq=False)
class Loop:
    """A scan with the example in it, whose steps may use any value from outside.

    What does not depend on the example is computed outside of it: once, or for all steps at once.

    Attributes:
        operations: of one step, loops among them.
        carried: from step to step.
        taken, stacked: slices of values that a step takes, and values that it makes slices of.
        length, reverse, unroll: as those of `jax.lax.scan`.
    """

    operations: "list[Operation | Loop]"
    carried: tuple[Carried, ...]
    taken: tuple[Sliced, ...]
    stacked: tuple[Sliced, ...]
    length: int
    reverse: bool
    unroll: int

    @property
    def inputs(self) -> tuple[int, ...]:
        """What must be known before it; some places of its own among them."""
        within = [place for operation in self.operations for place in operation.inputs]
        before = [place for each in self.carried for place in (each.before, each.end)]
        return (*within, *before, *(each.whole for each in self.taken), *(each.step for each in self.stacked))

    @property
    def outputs(self) -> tuple[int, ...]:
        return (*(each.after for each in self.carried), *(each.whole for each in self.stacked))

    @property
    def made(self) -> frozenset[int]:
        """Places that a step fills anew, those of loops within it left out."""
        outputs = (place for operation in self.operations for place in operation.outputs)
        return frozenset([*outputs, *(each.start for each in self.carried)])

    @property
    def wholes(self) -> dict[int, int]:
        """By place in a step, that of the value that it is a slice of."""
        return {each.step: each.whole for each in self.taken}


class Program(NamedTuple):
    """What `trace` found.

    Attributes:
        operations: in the order of evaluation; only those that the output needs.
        types: shape and dtype of every value; within a loop, of one step.
        constants: values that depend on nothing.
        leaves, example: places of the parameters' leaves and of the parts of the example.
        output: place of the result.
        depends: of each value that does not depend on the example, the leaves that it depends on.
        of_example: of each value, whether it depends on the example.
    """

    operations: list[Operation | Loop]
    types: list[Any]
    constants: dict[int, Any]
    leaves: list[int]
    example: list[int]
    output: int
    depends: list[frozenset[int]]
    of_example: list[bool]


def needed(operations: Sequence[Operation | Loop], wanted: Iterable[int]) -> list[Operation | Loop]:
    """The operations that the wanted values need; of loops, what they need of a step."""
    remaining, kept = set(wanted), list[Operation | Loop]()
    for operation in reversed(operations):
        if remaining.isdisjoint(operation.outputs):
            continue
        each = _needed_loop(operation, remaining) if isinstance(operation, Loop) else operation
        remaining.update(each.inputs)
        kept.append(each)
    return kept[::-1]


def _needed_loop(loop: Loop, remaining: set[int]) -> Loop:
    stacked = tuple(each for each in loop.stacked if each.whole in remaining)
    wanted = [each.end for each in loop.carried] + [each.step for each in stacked]
    operations = needed(loop.operations, wanted)
    used = {place for operation in operations for place in operation.inputs} | set(wanted)
    taken = tuple(each for each in loop.taken if each.step in used)
    return Loop(operations, loop.carried, taken, stacked, loop.length, loop.reverse, loop.unroll)


def run(operation: Operation, values: Sequence[Any]) -> list[Any]:
    """The outputs of one operation."""
    with operation.context.manager:
        outputs = operation.primitive.bind(*values, **operation.primitive.get_bind_params(operation.params))
    return list(outputs) if operation.primitive.multiple_results else [outputs]


def evaluate(operations: Iterable[Operation], known: Mapping[int, Any]) -> dict[int, Any]:
    """All values, from the `known` ones on."""
    values = dict(known)
    for operation in operations:
        outputs = run(operation, [values[place] for place in operation.inputs])
        values.update(zip(operation.outputs, outputs, strict=True))
    return values


def of_type(value: Any, type: Any) -> Any:
    """The value in this dtype: a literal has none of its own."""
    return value if jnp.issubdtype(type.dtype, jax.dtypes.extended) else jnp.asarray(value, type.dtype)
