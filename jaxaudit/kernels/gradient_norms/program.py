"""A function of parameters and one example as a flat list of operations, and what each value depends on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Literal, Primitive

# Calls that only wrap their body. A custom derivative is more than its body, so it stays one operation.
CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2"})


class Operation(NamedTuple):
    """One operation; `inputs` and `outputs` are places in the program's list of values."""

    primitive: Primitive
    params: dict[str, Any]
    context: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Program(NamedTuple):
    """What `trace` found.

    Attributes:
        operations: in the order of evaluation; only those that the output needs.
        types: shape and dtype of every value.
        constants: values that depend on nothing.
        leaves, example: places of the parameters' leaves and of the parts of the example.
        output: place of the result.
        depends: of each value, the leaves that it depends on.
        of_example: of each value, whether it depends on the example.
    """

    operations: list[Operation]
    types: list[Any]
    constants: dict[int, Any]
    leaves: list[int]
    example: list[int]
    output: int
    depends: list[frozenset[int]]
    of_example: list[bool]


def trace(function: Callable[..., Any], leaves: Sequence[Any], example: Sequence[Any]) -> Program:
    """The program of `function(leaves, *example)`, a scalar; nothing is computed."""
    closed = jax.make_jaxpr(function)(list(leaves), *example)
    types: list[Any] = []
    constants: dict[int, Any] = {}
    operations: list[Operation] = []

    def new(aval: Any) -> int:
        types.append(aval)
        return len(types) - 1

    def constant(value: Any, aval: Any) -> int:
        place = new(aval)
        constants[place] = value
        return place

    def inline(jaxpr: Any, consts: Iterable[Any], arguments: Sequence[int]) -> list[int]:
        places = dict(zip(jaxpr.invars, arguments, strict=True))
        places |= {v: constant(value, v.aval) for v, value in zip(jaxpr.constvars, consts, strict=True)}

        def read(atom: Any) -> int:
            return constant(atom.val, atom.aval) if isinstance(atom, Literal) else places[atom]

        for eqn in jaxpr.eqns:
            inputs = tuple(read(atom) for atom in eqn.invars)
            body = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr")) if eqn.primitive.name in CALLS else None
            if body is not None:
                closed_body = isinstance(body, ClosedJaxpr)
                outputs = inline(body.jaxpr, body.consts, inputs) if closed_body else inline(body, (), inputs)
            else:
                outputs = [new(v.aval) for v in eqn.outvars]
                operations.append(Operation(eqn.primitive, eqn.params, eqn.ctx, inputs, tuple(outputs)))
            places |= dict(zip(eqn.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    arguments = [new(v.aval) for v in closed.jaxpr.invars]
    (output,) = inline(closed.jaxpr, closed.consts, arguments)
    kept = _needed(operations, output)
    split = len(leaves)
    return Program(
        kept,
        types,
        constants,
        arguments[:split],
        arguments[split:],
        output,
        *_dependence(kept, len(types), arguments[:split], arguments[split:]),
    )


def _needed(operations: list[Operation], output: int) -> list[Operation]:
    needed, kept = {output}, []
    for operation in reversed(operations):
        if not needed.isdisjoint(operation.outputs):
            needed.update(operation.inputs)
            kept.append(operation)
    return kept[::-1]


def _dependence(
    operations: list[Operation], values: int, leaves: list[int], example: list[int]
) -> tuple[list[frozenset[int]], list[bool]]:
    depends: list[frozenset[int]] = [frozenset()] * values
    of_example = [False] * values
    for index, place in enumerate(leaves):
        depends[place] = frozenset([index])
    for place in example:
        of_example[place] = True
    for operation in operations:
        leaves_of = frozenset().union(*(depends[place] for place in operation.inputs))
        varies = any(of_example[place] for place in operation.inputs)
        for place in operation.outputs:
            depends[place], of_example[place] = leaves_of, varies
    return depends, of_example


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
