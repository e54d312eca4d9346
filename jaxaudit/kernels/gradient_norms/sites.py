"""Operands and cotangents at the sites of a program, for one example."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxaudit.kernels.gradient_norms.program import Operation, Program, run_operation
from jaxaudit.kernels.gradient_norms.rules import differentiable


class Site(NamedTuple):
    """A varying operation that uses parameter values at these positions."""

    operation: Operation
    positions: tuple[int, ...]


class Meeting(NamedTuple):
    """The operands of a site, and the cotangents of its outputs, for one example."""

    operation: Operation
    operands: list[Any]
    cotangents: list[Array]


def sites_of(program: Program, operations: Sequence[Operation]) -> dict[int, Site]:
    """The sites among these operations, by the place of their first output."""
    sites: dict[int, Site] = {}
    for operation in operations:
        if any(differentiable(program.types[place]) for place in operation.outputs):
            taken = [
                position
                for position, place in enumerate(operation.inputs)
                if program.depends[place] and not program.of_example[place] and differentiable(program.types[place])
            ]
            if taken:
                sites[operation.outputs[0]] = Site(operation, tuple(taken))
    return sites


def meetings(
    program: Program, varying: Sequence[Operation], sites: dict[int, Site], values_before: dict[int, Any]
) -> dict[int, Meeting]:
    """The operands and cotangents of every site for one example in `values_before`, by one backward pass."""
    needed_places = {place for site in sites.values() for place in site.operation.inputs}

    def zeros(site: Site) -> list[Array]:
        types = [program.types[place] for place in site.operation.outputs]
        return [jnp.zeros(type.shape, type.dtype) for type in types if differentiable(type)]

    def shifted(shifts: dict[int, list[Array]]) -> tuple[Array, dict[int, Any]]:
        values = dict(values_before)
        for operation in varying:
            outputs = run_operation(operation, [values[place] for place in operation.inputs])
            if operation.outputs[0] in shifts:
                shift = iter(shifts[operation.outputs[0]])
                outputs = [value + next(shift) if differentiable(value) else value for value in outputs]
            values.update(zip(operation.outputs, outputs, strict=True))
        return values[program.output], {place: values[place] for place in needed_places}

    value, pull, kept = jax.vjp(shifted, {first: zeros(site) for first, site in sites.items()}, has_aux=True)
    (cotangents,) = pull(jnp.ones_like(value))
    return {
        first: Meeting(site.operation, [kept[place] for place in site.operation.inputs], cotangents[first])
        for first, site in sites.items()
    }
