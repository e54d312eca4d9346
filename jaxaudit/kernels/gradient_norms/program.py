"""A function of parameters and one example as a `Program`: a list of operations, with calls inlined and scans as loops.

Computations in a scan that do not depend on the example are moved out of the loop. They run once or, if they differ
between steps, for all steps together. So the same rules apply to operations in a step as to other operations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, Primitive


class Operation(NamedTuple):
    """One operation; `inputs` and `outputs` are indices ("places") in the program's list of values."""

    primitive: Primitive
    params: dict[str, Any]
    context: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Carry(NamedTuple):
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
    """A scan that depends on the example; a step uses slices of `taken` and computes slices of `stacked` values."""

    operations: "list[Operation | Loop]"
    carried: tuple[Carry, ...]
    taken: tuple[Sliced, ...]
    stacked: tuple[Sliced, ...]
    length: int
    reverse: bool
    unroll: int

    @property
    def inputs(self) -> tuple[int, ...]:
        """The places that must be known before the loop; they include some of the loop's own places."""
        operation_inputs = [place for operation in self.operations for place in operation.inputs]
        carry_inputs = [place for carried in self.carried for place in (carried.before, carried.end)]
        return (
            *operation_inputs,
            *carry_inputs,
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
    return replace(loop, operations=operations, taken=taken, stacked=stacked)


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


# Calls that only wrap their body. A custom derivative is more than its body, so it stays one operation.
CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2"})

MOST_STACKED = 64 * 2**20
"""The most bytes for all steps of a value that is computed outside of the loop, or 4 times its operands if more."""


class _Unfit(Exception):
    """Raised for a scan that should stay a single operation."""


@dataclass
class _Scope:
    """The program, or the body of a loop within an outer scope; `wholes` has the whole value of each slice."""

    outer: "_Scope | None" = None
    length: int = 0
    operations: list[Operation | Loop] = field(default_factory=list)
    wholes: dict[int, int] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else self.outer.depth + 1

    def at(self, depth: int) -> "_Scope":
        """This scope, or the one around it at this depth."""
        return self if self.outer is None or self.depth == depth else self.outer.at(depth)


@dataclass
class _Tracing:
    """A program under construction; `depths` says of values without the example in which loops their steps differ."""

    types: list[Any] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    depends: list[frozenset[int]] = field(default_factory=list)
    of_example: list[bool] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)

    def new(self, aval: Any, depends: Iterable[int] = (), of_example: bool = False, depth: int = 0) -> int:
        self.types.append(aval)
        self.depends.append(frozenset(depends))
        self.of_example.append(of_example)
        self.depths.append(depth)
        return len(self.types) - 1

    def constant(self, value: Any, aval: Any) -> int:
        place = self.new(aval)
        self.constants[place] = value
        return place

    def leaves_of(self, places: Sequence[int]) -> frozenset[int]:
        return frozenset().union(*(self.depends[place] for place in places))

    def inline(self, closed: Any, arguments: Sequence[int], scope: _Scope) -> list[int]:
        """The places of the outputs of a jaxpr, closed or not, that is applied to these arguments."""
        jaxpr, consts = _with_consts(closed)
        places = dict(zip(jaxpr.invars, arguments, strict=True))
        places |= {v: self.constant(value, v.aval) for v, value in zip(jaxpr.constvars, consts, strict=True)}

        def read(atom: Any) -> int:
            return self.constant(atom.val, atom.aval) if isinstance(atom, Literal) else places[atom]

        for eqn in jaxpr.eqns:
            inputs = [read(atom) for atom in eqn.invars]
            name = eqn.primitive.name
            body = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr")) if name in CALLS else None
            if body is not None:
                outputs = self.inline(body, inputs, scope)
            elif name == "scan" and self.is_worth_opening(eqn, inputs):
                try:
                    outputs = self.opened(eqn, inputs, scope)
                except _Unfit:
                    outputs = self.emitted(eqn, inputs, scope)
            else:
                outputs = self.emitted(eqn, inputs, scope)
            places |= dict(zip(eqn.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def is_worth_opening(self, scan: Any, inputs: Sequence[int]) -> bool:
        """Whether a scan combines parameters with the example."""
        of_parameters = any(self.depends[place] and not self.of_example[place] for place in inputs)
        return scan.params["length"] > 0 and of_parameters and any(self.of_example[place] for place in inputs)

    def emitted(self, eqn: Any, inputs: Sequence[int], scope: _Scope, varies: bool = False) -> list[int]:
        """Adds an operation in the outermost scope possible; with `varies`, as if it depended on the example."""
        varies = varies or any(self.of_example[place] for place in inputs)
        depth = max((self.depths[place] for place in inputs), default=0)
        if not varies and depth:
            return self.for_all_steps(eqn, inputs, scope.at(depth))
        leaves = self.leaves_of(inputs)
        outputs = [self.new(v.aval, leaves, varies) for v in eqn.outvars]
        home = scope if varies else scope.at(0)
        home.operations.append(Operation(eqn.primitive, eqn.params, eqn.ctx, tuple(inputs), tuple(outputs)))
        return outputs

    def for_all_steps(self, eqn: Any, inputs: Sequence[int], scope: _Scope) -> list[int]:
        """Moves an operation on slices out of the loop, where it is applied to the whole values."""
        assert scope.outer is not None
        is_sliced = [self.depths[place] == scope.depth for place in inputs]
        wholes = [scope.wholes[place] if sliced else place for place, sliced in zip(inputs, is_sliced, strict=True)]
        operation = Operation(eqn.primitive, eqn.params, eqn.ctx, (), ())
        size = scope.length * sum(_bytes(v.aval) for v in eqn.outvars)
        if size > max(MOST_STACKED, 4 * sum(_bytes(self.types[place]) for place in wholes)):
            raise _Unfit

        def steps(*values: Any) -> list[Any]:
            axes = [0 if sliced else None for sliced in is_sliced]
            return jax.vmap(lambda *operands: run_operation(operation, operands), axes, axis_size=scope.length)(*values)

        outside = self.function(steps, wholes, scope.outer)
        return [self.slice_of(place, v.aval, scope) for place, v in zip(outside, eqn.outvars, strict=True)]

    def function(self, function: Callable[..., Any], inputs: Sequence[int], scope: _Scope) -> list[int]:
        """Adds the operations of a function of values."""
        types = [jax.ShapeDtypeStruct(self.types[place].shape, self.types[place].dtype) for place in inputs]
        try:
            closed = jax.make_jaxpr(function)(*types)
        except NotImplementedError as error:  # an operation that cannot be batched
            raise _Unfit from error
        return self.inline(closed, inputs, scope)

    def slice_of(self, whole: int, aval: Any, scope: _Scope) -> int:
        """The place of the slice that a loop's step uses of a value with an axis of steps."""
        varies = self.of_example[whole]
        place = self.new(aval, self.depends[whole], varies, 0 if varies else scope.depth)
        scope.wholes[place] = whole
        return place

    def opened(self, eqn: Any, inputs: Sequence[int], outer: _Scope) -> list[int]:
        """Adds a scan as a loop; what it carries counts as if it depended on the example, even a counter."""
        params, (first, split) = eqn.params, _parts_of(eqn)
        body, _ = _with_consts(params["jaxpr"])
        scope, leaves, count = _Scope(outer, params["length"]), self.leaves_of(inputs), split - first
        before = [self.of_its_own(place, outer) for place in inputs[first:split]]
        starts = [
            self.new(variable.aval, self.depends[place], True)
            for place, variable in zip(before, body.invars[first:split], strict=True)
        ]
        slices = [
            self.slice_of(place, variable.aval, scope)
            for place, variable in zip(inputs[split:], body.invars[split:], strict=True)
        ]
        outputs = self.inline(params["jaxpr"], [*inputs[:first], *starts, *slices], scope)
        ends = [self.of_its_own(place, scope) for place in outputs]
        after = [self.new(variable.aval, leaves, True) for variable in eqn.outvars]
        carried = tuple(map(Carry, before, starts, ends[:count], after[:count]))
        taken = tuple(Sliced(whole, step) for step, whole in scope.wholes.items())
        stacked = tuple(map(Sliced, after[count:], ends[count:]))
        how = params["length"], params["reverse"], params["unroll"]
        outer.operations.append(Loop(scope.operations, carried, taken, stacked, *how))
        return after

    def of_its_own(self, place: int, scope: _Scope) -> int:
        """The place of the value or, if it depends on parameters alone, of a copy for the loop."""
        inexact = jnp.issubdtype(self.types[place].dtype, jnp.inexact)
        if self.of_example[place] or not self.depends[place] or not inexact:
            return place
        (copy,) = jax.make_jaxpr(lambda value: jnp.array(value, copy=True))(self.types[place]).eqns
        return self.emitted(copy, [place], scope, varies=True)[0]


def _with_consts(closed: Any) -> tuple[Any, Sequence[Any]]:
    """A jaxpr and the values of its constants; without, if it is not closed."""
    return (closed.jaxpr, closed.consts) if isinstance(closed, ClosedJaxpr) else (closed, ())


def _parts_of(scan: Any) -> tuple[int, int]:
    """Where, among a scan's operands, the carried values begin, and where the slices do."""
    if "ft_in" in scan.params:  # from jax 0.11 on
        consts, carry, _ = scan.params["ft_in"].unpack()
        return len(list(consts)), len(list(consts)) + len(list(carry))
    return scan.params["num_consts"], scan.params["num_consts"] + scan.params["num_carry"]


def _bytes(aval: Any) -> int:
    return prod(aval.shape) * aval.dtype.itemsize


def trace(function: Callable[..., Any], leaves: Sequence[Any], example: Sequence[Any], trained: int) -> Program:
    """Traces `function(leaves, *example)`, a scalar; gradients are wanted of the first `trained` leaves."""
    closed = jax.make_jaxpr(function)(list(leaves), *example)
    tracing, scope, split = _Tracing(), _Scope(), len(leaves)
    arguments = [
        tracing.new(v.aval, [index] if index < trained else (), index >= split)
        for index, v in enumerate(closed.jaxpr.invars)
    ]
    (output,) = tracing.inline(closed, arguments, scope)
    return Program(
        needed(scope.operations, [output]),
        tracing.types,
        tracing.constants,
        arguments[:split],
        arguments[split:],
        output,
        tracing.depends,
        tracing.of_example,
    )
