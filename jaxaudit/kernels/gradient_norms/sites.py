"""Operands, cotangents and gradients at the sites of a program, for one example, including sites in loops.

Within a loop, a site is evaluated once per step. Its operands and cotangents then have a leading axis of steps for
every loop around it, and the rule for one step is mapped over these axes. Steps that use the same array are positions
of one sum; steps that use slices of an array are separate groups.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxaudit.kernels.gradient_norms.program import Loop, Operation, Program, of_type, run_operation
from jaxaudit.kernels.gradient_norms.rules import (
    LOCAL,
    Factors,
    Gradient,
    Rows,
    Rule,
    by_derivative,
    differentiable,
    is_made,
    is_turned,
    of_product,
)

ADDITIONS = frozenset({"add", "add_any"})


class Site(NamedTuple):
    """A varying operation that uses parameter values at these positions, and the loops around it, outermost first."""

    operation: Operation
    positions: tuple[int, ...]
    loops: tuple[Loop, ...]


class Meeting(NamedTuple):
    """The operands and cotangents of a site for one example, with a leading axis for every loop; an operand's only for
    those between whose steps it differs (`differ`).
    """

    site: Site
    operands: list[Any]
    differ: list[tuple[bool, ...]]
    cotangents: list[Array]


def sites_of(program: Program, operations: Sequence[Operation | Loop], loops: tuple[Loop, ...] = ()) -> dict[int, Site]:
    """The sites among these operations, by the place of their first output."""
    sites: dict[int, Site] = {}
    for operation in operations:
        if isinstance(operation, Loop):
            sites |= sites_of(program, operation.operations, (*loops, operation))
        elif any(differentiable(program.types[place]) for place in operation.outputs):
            taken = [
                position
                for position, place in enumerate(operation.inputs)
                if program.depends[place] and not program.of_example[place] and differentiable(program.types[place])
            ]
            if taken:
                sites[operation.outputs[0]] = Site(operation, tuple(taken), loops)
    return sites


def source_of(place: int, loops: Sequence[Loop]) -> tuple[int, tuple[bool, ...]]:
    """The origin of a value that an operation within loops uses, and in which loops it differs between steps."""
    differs: list[bool] = []
    for loop in reversed(loops):
        if place in loop.step_places:
            differs += [True] * (len(loops) - len(differs))
            break
        differs.append(place in loop.wholes)
        place = loop.wholes.get(place, place)
    return place, tuple(reversed(differs))


def _sums_of(program: Program, operations: Sequence[Operation | Loop]) -> dict[int, int]:
    """For values that are only added to another one: the place of the sum, which has the same cotangent."""
    used = Counter(place for operation in operations for place in operation.inputs)
    used[program.output] += 1

    def within(operations: Sequence[Operation | Loop]) -> dict[int, int]:
        total_of: dict[int, int] = {}
        places_here = {place for operation in operations for place in operation.outputs}
        for operation in operations:
            if isinstance(operation, Loop):
                total_of |= within(operation.operations)
            elif operation.primitive.name in ADDITIONS:
                (total,) = operation.outputs
                of = program.types[total]
                alone = [place for place in operation.inputs if used[place] == 1 and place in places_here]
                total_of |= {place: total for place in alone if _is_alike(program.types[place], of)}
        return total_of

    return within(operations)


def _is_alike(first: Any, second: Any) -> bool:
    return (first.shape, first.dtype) == (second.shape, second.dtype)


def meetings(
    program: Program, varying: Sequence[Operation | Loop], sites: dict[int, Site], values_before: dict[int, Any]
) -> dict[int, Meeting]:
    """The operands and cotangents of every site for one example in `values_before`, by one backward pass."""
    sources = {
        first: [source_of(place, site.loops) for place in site.operation.inputs] for first, site in sites.items()
    }
    needed_places = {place for pairs in sources.values() for place, _ in pairs}
    sums = _sums_of(program, varying)

    def seen_at(site: Site) -> int:
        """The place at which the cotangents are computed; a loop would store equal ones separately."""
        place, *more = site.operation.outputs
        while not more and place in sums:
            place = sums[place]
        return place

    def zeros(site: Site) -> list[Array]:
        steps = [loop.length for loop in site.loops]
        types = [program.types[place] for place in site.operation.outputs]
        return [jnp.zeros((*steps, *type.shape), type.dtype) for type in types if differentiable(type)]

    def shifted(shifts: dict[int, list[Array]]) -> tuple[Array, dict[int, Any]]:
        values, kept = _run_all(program, varying, values_before, shifts, needed_places)
        return values[program.output], {place: values[place] for place in needed_places & values.keys()} | kept

    value, pull, kept = jax.vjp(shifted, {seen_at(site): zeros(site) for site in sites.values()}, has_aux=True)
    (cotangents,) = pull(jnp.ones_like(value))
    return {
        first: Meeting(
            site,
            [kept[place] for place, _ in sources[first]],
            [differs for _, differs in sources[first]],
            cotangents[seen_at(site)],
        )
        for first, site in sites.items()
    }


def _run_all(
    program: Program,
    operations: Sequence[Operation | Loop],
    values_before: dict[int, Any],
    shifts: dict[int, list[Array]],
    needed_places: set[int],
) -> tuple[dict[int, Any], dict[int, Any]]:
    """All values of these operations, and the wanted ones within their loops."""
    values, kept = dict(values_before), dict[int, Any]()
    for operation in operations:
        if isinstance(operation, Loop):
            outputs, within = _run_loop(program, operation, values, shifts, needed_places)
            kept |= within
        else:
            outputs = run_operation(operation, [values[place] for place in operation.inputs])
            if operation.outputs[0] in shifts:
                shift = iter(shifts[operation.outputs[0]])
                outputs = [value + next(shift) if differentiable(value) else value for value in outputs]
        values.update(zip(operation.outputs, outputs, strict=True))
    return values, kept


def _first_outputs(operations: Sequence[Operation | Loop]) -> Iterator[int]:
    for operation in operations:
        if isinstance(operation, Loop):
            yield from _first_outputs(operation.operations)
        else:
            yield operation.outputs[0]


def _run_loop(
    program: Program, loop: Loop, values: dict[int, Any], shifts: dict[int, list[Array]], needed_places: set[int]
) -> tuple[list[Any], dict[int, Any]]:
    loop_shifts = {first: shifts[first] for first in _first_outputs(loop.operations) if first in shifts}
    step_places = needed_places & loop.step_places

    def step(carry: list[Any], slices_and_shift: tuple[list[Any], dict[int, list[Array]]]) -> tuple[list[Any], Any]:
        slices, shift = slices_and_shift
        within = values | dict(zip([carried.start for carried in loop.carried], carry, strict=True))
        within |= dict(zip([slice_taken.step for slice_taken in loop.taken], slices, strict=True))
        within, kept = _run_all(program, loop.operations, within, shift, needed_places)
        kept |= {place: within[place] for place in step_places}
        return [within[carried.end] for carried in loop.carried], (
            [within[slice_stacked.step] for slice_stacked in loop.stacked],
            kept,
        )

    start = [of_type(values[carried.before], program.types[carried.start]) for carried in loop.carried]
    slices = [values[slice_taken.whole] for slice_taken in loop.taken]
    last, (stacked, kept) = jax.lax.scan(step, start, (slices, loop_shifts), loop.length, loop.reverse, loop.unroll)
    return [*last, *stacked], kept


def by_rule_at(meeting: Meeting, rule: Rule, position: int, apart: Sequence[bool]) -> Gradient:
    """The gradient of the value at this operand position, for all steps together."""
    operation, loops = meeting.site.operation, meeting.site.loops

    def one(operands: list[Any], cotangent: Array) -> Gradient:
        return rule(operation, position, operands, cotangent)

    if not loops and rule is of_product and is_turned(operation, position, meeting.operands):
        shapes_of_parts = jax.eval_shape(one, meeting.operands, meeting.cotangents[0])
        if is_made(shapes_of_parts):
            return by_derivative(operation, [position], meeting.operands, meeting.cotangents)[0]

    mapped = one
    for depth in reversed(range(len(loops))):
        mapped = jax.vmap(mapped, ([0 if depths[depth] else None for depths in meeting.differ], 0))
    return _together(mapped(meeting.operands, meeting.cotangents[0]), apart)


def _together(gradient: Gradient, apart: Sequence[bool]) -> Gradient:
    """Merges the leading axes of steps of a gradient: into groups if steps use separate slices, else into positions."""
    if not apart:
        return gradient
    count = len(apart)
    axes_apart = [axis for axis in range(count) if apart[axis]]
    summed = [axis for axis in range(count) if not apart[axis]]

    def moved(array: Array, rest: Sequence[int], shape: Sequence[int]) -> Array:
        """With the summed steps before these last axes."""
        before = [axis for axis in range(count, array.ndim) if axis not in rest]
        return array.transpose(*axes_apart, *before, *summed, *rest).reshape(shape)

    if isinstance(gradient, Factors):
        sizes = gradient.right.shape[:count]
        positions, rows, columns = gradient.sizes
        groups = prod(sizes[axis] for axis in axes_apart) * gradient.right.shape[count]
        positions *= prod(sizes[axis] for axis in summed)
        ahead = (groups, rows, positions) if gradient.rows_first else (groups, positions, rows)
        left = moved(gradient.left, [count + 2] if gradient.rows_first else [count + 1, count + 2], ahead)
        right = moved(gradient.right, [count + 1, count + 2], (groups, positions, columns))
        group_rows = gradient.right.shape[count]
        assemble = _apart(gradient.assemble, [sizes[axis] for axis in axes_apart], (group_rows, rows, columns))
        return Factors(left, right, assemble, gradient.rows_first)
    assert isinstance(gradient, Rows)
    sizes, width, height = gradient.indices.shape[:count], gradient.values.shape[-1], gradient.height
    starts = height * jnp.arange(prod(sizes[axis] for axis in axes_apart)).reshape(
        [sizes[axis] if apart[axis] else 1 for axis in range(count)] + [1]
    )
    indices = moved(gradient.indices + starts, [count], (-1,))
    values = moved(gradient.values, [count, count + 1], (-1, width))
    lengths = [sizes[axis] for axis in axes_apart]
    assemble = _apart(gradient.assemble, lengths, (height, width))
    return Rows(indices, values, height * prod(lengths), assemble)


def _apart(
    assemble: Callable[[Array], Array], lengths: Sequence[int], shape: tuple[int, ...]
) -> Callable[[Array], Array]:
    """From the parts of all steps, one after another, to an array with axes of steps."""
    if not lengths:
        return assemble

    def all_steps(parts: Array) -> Array:
        assembled = jax.vmap(assemble)(parts.reshape(-1, *shape))
        return assembled.reshape(*lengths, *assembled.shape[1:])

    return all_steps


def by_derivative_at(meeting: Meeting, wanted_uses: Sequence[tuple[int, Sequence[bool]]]) -> list[Array]:
    """The gradients of the values at these positions, of which it is said in which loops steps take slices."""
    operation, loops = meeting.site.operation, meeting.site.loops
    positions = [position for position, _ in wanted_uses]

    def one(operands: list[Any], cotangents: list[Array]) -> list[Array]:
        return list(by_derivative(operation, positions, operands, cotangents))

    mapped = one
    for depth in reversed(range(len(loops))):
        differ = [depths[depth] for depths in meeting.differ]
        apart = [depths[depth] for _, depths in wanted_uses]
        mapped = _over_steps(mapped, differ, apart, at_once=operation.primitive.name in LOCAL)
    return mapped(meeting.operands, meeting.cotangents)


BLOCK = 64
"""Steps are summed in blocks of this size, since rounding would accumulate over thousands of steps."""


def _sum_of_steps(parts: Array) -> Array:
    # As products: a CPU's sum over the first axis of an array takes up to twenty times as long.
    whole = len(parts) // BLOCK * BLOCK
    rest = jnp.tensordot(jnp.ones(len(parts) - whole, parts.dtype), parts[whole:], 1)
    if not whole:
        return rest
    blocks = jnp.einsum(
        "t,bt...->b...", jnp.ones(BLOCK, parts.dtype), parts[:whole].reshape(-1, BLOCK, *parts.shape[1:])
    )
    return _sum_of_steps(jnp.concatenate([blocks, rest[None]]))


Derivative = Callable[[list[Any], list[Array]], list[Array]]


def _over_steps(function: Derivative, differ: list[bool], apart: list[bool], at_once: bool) -> Derivative:
    """The gradients of all steps, side by side where they are apart and else summed, step by step or at once."""

    def summed_at_once(operands: list[Any], cotangents: list[Array]) -> list[Array]:
        parts = jax.vmap(function, ([0 if differs else None for differs in differ], 0))(operands, cotangents)
        return [part if is_apart else _sum_of_steps(part) for part, is_apart in zip(parts, apart, strict=True)]

    def summed_by_step(operands: list[Any], cotangents: list[Array]) -> list[Array]:
        def with_slices(slices: list[Any], cotangents: list[Array]) -> list[Array]:
            pairs = zip(operands, slices, strict=True)
            return function([operand if part is None else part for operand, part in pairs], cotangents)

        def step(sums: list[Any], slices_and_cotangents: tuple[list[Any], list[Array]]) -> tuple[list[Any], list[Any]]:
            parts = with_slices(*slices_and_cotangents)
            kept = [part if is_apart else None for part, is_apart in zip(parts, apart, strict=True)]
            return [None if so_far is None else so_far + part for so_far, part in zip(sums, parts, strict=True)], kept

        # None where there is no slice, no sum or nothing to keep.
        slices = [operand if differs else None for operand, differs in zip(operands, differ, strict=True)]
        shapes = jax.eval_shape(with_slices, *jax.tree.map(lambda array: array[0], (slices, cotangents)))
        start = [
            None if is_apart else jnp.zeros(shape.shape, shape.dtype)
            for shape, is_apart in zip(shapes, apart, strict=True)
        ]
        sums, kept = jax.lax.scan(step, start, (slices, cotangents))
        return [part if so_far is None else so_far for so_far, part in zip(sums, kept, strict=True)]

    return summed_at_once if at_once else summed_by_step
