"""Plans how the gradient of every leaf is computed from the operations that combine parameters with the example.

Values that depend on parameters alone (a reshaped bias, a kernel of weight normalisation, a folded running variance)
are computed once. An operation that combines such a value with one that depends on the example is a *site*. One
backward pass gives the cotangents of the outputs of all sites. With a site's operands, they give the gradient of the
parameter values that it uses. Moves of entries, or JAX's own derivative, lead from there to the leaves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array

from jaxaudit.errors import InputError
from jaxaudit.kernels.gradient_norms.program import (
    Loop,
    Operation,
    Program,
    as_looked_up,
    evaluate,
    run_operation,
    trace,
)
from jaxaudit.kernels.gradient_norms.rules import (
    LOCAL,
    Factors,
    Gradient,
    Rows,
    Rule,
    Tied,
    gradient_array,
    join_factors,
    looked_up,
    matching_rule,
)
from jaxaudit.kernels.gradient_norms.sites import Site, by_derivative_at, by_rule_at, meetings, sites_of, source_of

CONTRACTED, DIFFERENTIATED = "contracted", "vmap(grad)"

# Operations that move the entries of an array without changing them.
MOVES = frozenset({"reshape", "transpose", "squeeze", "expand_dims", "rev", "copy", "copy_p"})


class Use(NamedTuple):
    """The use of a value as an operand of a site, by the index of its first output. `apart`: for each loop, whether
    every step uses a slice of its own; uses of equal `joins` can be joined.
    """

    site: int
    position: int
    rule: Rule | None
    apart: tuple[bool, ...]
    joins: Any


@dataclass(frozen=True, eq=False)
class GradientPlan:
    """How to compute the gradients of one example; the same for all examples. A value's place is its index.

    `direct` has the place of a leaf that sites use at one place only, after `moves` of its entries alone. Others are
    `pulled`: values computed from them are used at `pulled_places`. `batches`: JAX can take many at a time.
    """

    program: Program
    fixed: list[Operation]
    varying: list[Operation | Loop]
    sites: dict[int, Site]
    uses: dict[int, list[Use]]
    direct: dict[int, int]
    moves: dict[int, list[Operation]]
    pulled: list[int]
    pulled_places: list[int]
    paths: tuple[str, ...]
    batches: bool = True

    @property
    def under_trace(self) -> bool:
        """Whether the function closes over values that are being traced by a JAX transformation."""
        return any(isinstance(value, Tracer) for value in self.program.constants.values())


def make_plan(
    log_prob: Callable[..., Any], tree: Any, leaves: Sequence[Any], form: Any, example: Sequence[Any], trained: int
) -> GradientPlan:
    """The plan for parameters and one example of these types; of `tree`, `trained` leaves come before constants."""

    def one(leaves: list[Array], *parts: Array) -> Array:
        inputs, labels = jax.tree.unflatten(form, [part[None] for part in parts])
        params, constants = jax.tree.unflatten(tree, leaves)
        value = log_prob(params, inputs, labels, *constants)
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape != (1,) or dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            shape_text = f"a {type(value).__name__}" if shape is None else f"{dtype} of shape {shape}"
            raise InputError(
                f"log_prob maps one example to {shape_text}; it must return one log-probability per example, float of "
                "shape (1,) here: did it return all classes, or the mean?"
            )
        # Of the example in form, should the value not depend on it.
        return value.reshape(()) + jnp.sum(jnp.ravel(parts[0])[:0]).astype(dtype)

    program = trace(one, leaves, example, trained)
    program = program._replace(operations=as_looked_up(program))
    fixed = [op for op in program.operations if isinstance(op, Operation) and not program.of_example[op.outputs[0]]]
    varying = [op for op in program.operations if program.of_example[op.outputs[0]]]
    sites = sites_of(program, varying)
    uses = _uses(program, sites)
    origin = _origins(program, fixed)
    places = {leaf: [p for p in uses if leaf in program.depends[p]] for leaf in range(trained)}
    direct = {
        leaf: places_of_leaf[0]
        for leaf, places_of_leaf in places.items()
        if len(places_of_leaf) == 1 and places_of_leaf[0] in origin
    }
    moves = {leaf: origin[place] for leaf, place in direct.items()}
    pulled = [leaf for leaf, places_of_leaf in places.items() if places_of_leaf and leaf not in direct]
    paths = []
    for places_of_leaf in places.values():
        primitives = [
            (sites[use.site].operation.primitive.name, use.rule) for place in places_of_leaf for use in uses[place]
        ]
        easy = all(rule is not None or name in LOCAL for name, rule in primitives)
        paths.append(CONTRACTED if easy else DIFFERENTIATED)
    pulled_places = [place for place in uses if place not in direct.values()]
    plan = GradientPlan(program, fixed, varying, sites, uses, direct, moves, pulled, pulled_places, tuple(paths))
    return plan if _batches(plan) else replace(plan, batches=False)


def _batches(plan: GradientPlan) -> bool:
    """Whether JAX can compute the gradients of many examples at a time (not with `ragged_dot`)."""
    types = plan.program.types
    two = [jax.ShapeDtypeStruct((2, *types[place].shape), types[place].dtype) for place in plan.program.example]

    def gradients(leaves: list[Any], examples: list[Any]) -> dict[int, Gradient]:
        return jax.vmap(partial(place_gradients, plan, fixed_values(plan, leaves)))(examples)

    try:
        jax.eval_shape(gradients, [types[place] for place in plan.program.leaves], two)
    except NotImplementedError:
        return False
    return True


def _uses(program: Program, sites: dict[int, Site]) -> dict[int, list[Use]]:
    uses: dict[int, list[Use]] = {}
    for first, site in sites.items():
        for position in site.positions:
            rule, joins = matching_rule(site.operation, position, program.types) or (None, None)
            place, apart = source_of(site.operation.inputs[position], site.loops)
            lengths = tuple(loop.length for loop, differs in zip(site.loops, apart, strict=True) if differs)
            uses.setdefault(place, []).append(Use(first, position, rule, apart, (joins, lengths)))
    return uses


def _origins(program: Program, fixed: list[Operation]) -> dict[int, list[Operation]]:
    """The values that result from one leaf by only moving its entries, and those moves."""
    origin: dict[int, list[Operation]] = {place: [] for place in program.leaves}
    for operation in fixed:
        if len(operation.inputs) != 1 or operation.inputs[0] not in origin or len(operation.outputs) != 1:
            continue
        source, target = operation.inputs[0], operation.outputs[0]
        before, after = program.types[source], program.types[target]
        name = operation.primitive.name
        if name == "convert_element_type" and jnp.issubdtype(after.dtype, jnp.floating):
            origin[target] = origin[source]
        elif name in MOVES or (name == "broadcast_in_dim" and prod(before.shape) == prod(after.shape)):
            origin[target] = [*origin[source], operation]
    return origin


def fixed_values(plan: GradientPlan, leaves: Sequence[Any]) -> dict[int, Any]:
    """All values that do not depend on the example."""
    values = plan.program.constants | dict(zip(plan.program.leaves, leaves, strict=True))
    return evaluate(plan.fixed, values)


def place_gradients(plan: GradientPlan, fixed: dict[int, Any], example: Sequence[Any]) -> dict[int, Gradient]:
    """The gradient of one example with respect to every parameter value that a site uses."""
    values = fixed | dict(zip(plan.program.example, example, strict=True))
    values_at_sites = meetings(plan.program, plan.varying, plan.sites, values)
    derivatives: dict[tuple[int, int], Array] = {}
    for first in plan.sites:
        uses_at_site = [use for uses in plan.uses.values() for use in uses if use.site == first and use.rule is None]
        if uses_at_site:
            gradients_at_site = by_derivative_at(
                values_at_sites[first], [(use.position, use.apart) for use in uses_at_site]
            )
            derivatives |= {
                (first, use.position): part for use, part in zip(uses_at_site, gradients_at_site, strict=True)
            }

    def gradient(use: Use) -> Gradient:
        if use.rule is None:
            return derivatives[use.site, use.position]
        return by_rule_at(values_at_sites[use.site], use.rule, use.position, use.apart)

    return {place: _sum([gradient(use) for use in uses], uses) for place, uses in plan.uses.items()}


def _sum(parts: Sequence[Gradient], uses: Sequence[Use]) -> Gradient:
    """The gradient of a value that is used several times."""
    if len(parts) == 1:
        return parts[0]
    factors = [part for part in parts if isinstance(part, Factors)]
    rows = [part for part in parts if isinstance(part, Rows)]
    if factors and len(factors) + len(rows) == len(parts) and len({use.joins for use in uses}) == 1:
        together = join_factors(factors)
        if not rows:
            return together
        if len(together.left) == 1:
            return Tied(looked_up(rows), together)
    return sum((gradient_array(part) for part in parts[1:]), start=gradient_array(parts[0]))


def pull_back(plan: GradientPlan, leaves: Sequence[Any]) -> Callable[[Sequence[Array]], list[Array]]:
    """Computes the gradients of the leaves `plan.pulled` from those at `plan.pulled_places`."""

    def derive(chosen: list[Any]) -> list[Array]:
        replaced = list(leaves)
        for leaf, value in zip(plan.pulled, chosen, strict=True):
            replaced[leaf] = value
        values = fixed_values(plan, replaced)
        return [values[place] for place in plan.pulled_places]

    _, pull = jax.vjp(derive, [leaves[leaf] for leaf in plan.pulled])
    types = plan.program.types

    def back(gradients: Sequence[Array]) -> list[Array]:
        places = zip(gradients, plan.pulled_places, strict=True)
        return pull([gradient.astype(types[place].dtype) for gradient, place in places])[0]

    return back


def moved_back(plan: GradientPlan, leaf: int, array: Array) -> Array:
    """Moves the entries of a gradient at `plan.direct[leaf]` back to their positions in the leaf."""

    def move(value: Array) -> Array:
        for operation in plan.moves[leaf]:
            (value,) = run_operation(operation, [value])
        return value

    shape = plan.program.types[plan.program.leaves[leaf]].shape
    return jax.linear_transpose(move, jax.ShapeDtypeStruct(shape, array.dtype))(array)[0]
