"""A function of parameters and one example, as a flat list of operations with the dependencies of each value."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jax.extend.core import Primitive


class Operation(NamedTuple):
    """One operation; `inputs` and `outputs` are indices ("places") in the program's list of values."""

    primitive: Primitive
    params: dict[str, Any]
    context: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Program(NamedTuple):
    """The result of `trace`: operations in the order of evaluation, and facts of each value.

    `leaves`, `example` and `output` are places. `depends` has the leaves that a value depends on.
    """

    operations: list[Operation]
    types: list[Any]
    constants: dict[int, Any]
    leaves: list[int]
    example: list[int]
    output: int
    depends: list[frozenset[int]]
    of_example: list[bool]


def _needed_for(operations: Sequence[Operation], output: int) -> list[Operation]:
    remaining, kept = {output}, list[Operation]()
    for operation in reversed(operations):
        if not remaining.isdisjoint(operation.outputs):
            remaining.update(operation.inputs)
            kept.append(operation)
    return kept[::-1]


def as_looked_up(program: Program) -> list[Operation]:
    """The operations that the output needs, where products of a looked-up table use no transpose of it: its gradients
    have one layout.
    """
    tables = {operation.inputs[0] for operation in program.operations if operation.primitive.name == "gather"}
    turned = {
        operation.outputs[0]: operation
        for operation in program.operations
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

    rewritten = [
        product(product(operation, 0), 1) if operation.primitive.name == "dot_general" else operation
        for operation in program.operations
    ]
    return _needed_for(rewritten, program.output)


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
