"""A function of parameters and one example, as a flat list of operations with the dependencies of each value."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive


class Operation(NamedTuple):
    """One operation; `inputs` and `outputs` are indices ("places") in the program's list of values."""

    primitive: Primitive
    params: dict[str, Any]
    context: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Carried(NamedTuple):
    """A value that a loop carries: its places before the loop, at the start and end of a step, and after the loop."""

    before: int
    start: int
    end: int
    after: int


class Sliced(NamedTuple):
    """A value with a leading axis of steps outside of a loop, and the slice of it that a step uses or computes."""

    whole: int
    step: int


@dataclass(frozen=True, eq=False)
class Loop:
    """A scan that depends on the example; its steps may use any value from outside.

    A step uses a slice of the values `taken`, and computes a slice of those `stacked`.
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
        """The places that must be known before the loop; they include some of the loop's own places."""
        within = [place for operation in self.operations for place in operation.inputs]
        before = [place for carried in self.carried for place in (carried.before, carried.end)]
        return (
            *within,
            *before,
            *(slice_taken.whole for slice_taken in self.taken),
            *(slice_stacked.step for slice_stacked in self.stacked),
        )

    @property
    def outputs(self) -> tuple[int, ...]:
        return (*(carried.after for carried in self.carried), *(slice_stacked.whole for slice_stacked in self.stacked))

    @property
    def step_places(self) -> frozenset[int]:
        """The places that every step computes, without those of inner loops."""
        outputs = (place for operation in self.operations for place in operation.outputs)
        return frozenset([*outputs, *(carried.start for carried in self.carried)])

    @property
    def wholes(self) -> dict[int, int]:
        """For each place of a slice in a step, the place of the whole value."""
        return {slice_taken.step: slice_taken.whole for slice_taken in self.taken}


class Program(NamedTuple):
    """The result of `trace`: operations that the output needs, in the order of evaluation, and facts of each value.

    `leaves`, `example` and `output` are places. Types are, within a loop, those in one step. `depends` has the leaves
    that a value without the example depends on.
    """

    operations: list[Operation | Loop]
    types: list[Any]
    constants: dict[int, Any]
    leaves: list[int]
    example: list[int]
    output: int
    depends: list[frozenset[int]]
    of_example: list[bool]


def needed(operations: Sequence[Operation | Loop], places: Iterable[int]) -> list[Operation | Loop]:
    """The operations that the wanted values need; loops are reduced to the operations that are needed."""
    remaining, kept = set(places), list[Operation | Loop]()
    for operation in reversed(operations):
        if remaining.isdisjoint(operation.outputs):
            continue
        needed_operation = _needed_loop(operation, remaining) if isinstance(operation, Loop) else operation
        remaining.update(needed_operation.inputs)
        kept.append(needed_operation)
    return kept[::-1]


def _needed_loop(loop: Loop, remaining: set[int]) -> Loop:
    stacked = tuple(slice_stacked for slice_stacked in loop.stacked if slice_stacked.whole in remaining)
    places = [carried.end for carried in loop.carried] + [slice_stacked.step for slice_stacked in stacked]
    operations = needed(loop.operations, places)
    used = {place for operation in operations for place in operation.inputs} | set(places)
    taken = tuple(slice_taken for slice_taken in loop.taken if slice_taken.step in used)
    return Loop(operations, loop.carried, taken, stacked, loop.length, loop.reverse, loop.unroll)


def as_looked_up(program: Program) -> list[Operation | Loop]:
    """The operations, where products of a looked-up table use no transpose of it: its gradients have one layout."""
    operations = [operation for operation in program.operations if isinstance(operation, Operation)]
    tables = {operation.inputs[0] for operation in operations if operation.primitive.name == "gather"}
    turned = {
        operation.outputs[0]: operation
        for operation in operations
        if operation.primitive.name == "transpose"
        and operation.inputs[0] in tables
        and not program.of_example[operation.inputs[0]]
    }

    def product(operation: Operation, position: int) -> Operation:
        turn = turned.get(operation.inputs[position])
        if turn is None:
            return operation
        axes, numbers = turn.params["permutation"], operation.params["dimension_numbers"]
        free = [axis for at, axis in enumerate(axes) if all(at not in sides[position] for sides in numbers)]
        if free != sorted(free):
            return operation
        changed = [list(sides) for sides in numbers]
        for sides in changed:
            sides[position] = tuple(axes[at] for at in sides[position])
        inputs = list(operation.inputs)
        inputs[position] = turn.inputs[0]
        params = {**operation.params, "dimension_numbers": tuple(map(tuple, changed))}
        return operation._replace(inputs=tuple(inputs), params=params)

    def changed(operation: Operation | Loop) -> Operation | Loop:
        if isinstance(operation, Loop) or operation.primitive.name != "dot_general":
            return operation
        return product(product(operation, 0), 1)

    return (
        needed([changed(operation) for operation in program.operations], [program.output])
        if turned
        else program.operations
    )


def run_operation(operation: Operation, values: Sequence[Any]) -> list[Any]:
    """The outputs of one operation."""
    with operation.context.manager:
        outputs = operation.primitive.bind(*values, **operation.primitive.get_bind_params(operation.params))
    return list(outputs) if operation.primitive.multiple_results else [outputs]


def evaluate(operations: Iterable[Operation], values_before: Mapping[int, Any]) -> dict[int, Any]:
    """Evaluates the operations; returns the `values_before` values and all new ones."""
    values = dict(values_before)
    for operation in operations:
        outputs = run_operation(operation, [values[place] for place in operation.inputs])
        values.update(zip(operation.outputs, outputs, strict=True))
    return values


def of_type(value: Any, type: Any) -> Any:
    """Converts the value to this dtype, since a literal has none."""
    return value if jnp.issubdtype(type.dtype, jax.dtypes.extended) else jnp.asarray(value, type.dtype)
