"""Traces a function of parameters and one example into a `Program`, with calls inlined."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Literal

from jaxaudit.kernels.gradient_norms.program import Operation, Program

# Calls that only wrap their body. A custom derivative is more than its body, so it stays one operation.
CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2"})


@dataclass
class _Tracing:
    """A program under construction."""

    types: list[Any] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    depends: list[frozenset[int]] = field(default_factory=list)
    of_example: list[bool] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def new(self, aval: Any, depends: Iterable[int] = (), of_example: bool = False) -> int:
        self.types.append(aval)
        self.depends.append(frozenset(depends))
        self.of_example.append(of_example)
        return len(self.types) - 1

    def constant(self, value: Any, aval: Any) -> int:
        place = self.new(aval)
        self.constants[place] = value
        return place

    def inline(self, body: Any, arguments: Sequence[int]) -> list[int]:
        """The places of the outputs of a jaxpr that is applied to these arguments."""
        jaxpr, consts = opened(body)
        places = dict(zip(jaxpr.invars, arguments, strict=True))
        places |= {v: self.constant(value, v.aval) for v, value in zip(jaxpr.constvars, consts, strict=True)}

        def read(atom: Any) -> int:
            return self.constant(atom.val, atom.aval) if isinstance(atom, Literal) else places[atom]

        for eqn in jaxpr.eqns:
            inputs = [read(atom) for atom in eqn.invars]
            name = eqn.primitive.name
            if name in CALLS:
                outputs = self.inline(eqn.params.get("jaxpr", eqn.params.get("call_jaxpr")), inputs)
            elif name == "scan" and eqn.params["length"] == 1:
                outputs = self.inline(_only_step(eqn), inputs)
            else:
                outputs = self.emitted(eqn, inputs)
            places |= dict(zip(eqn.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def emitted(self, eqn: Any, inputs: Sequence[int]) -> list[int]:
        """Adds an operation."""
        varies = any(self.of_example[place] for place in inputs)
        leaves = frozenset[int]().union(*(self.depends[place] for place in inputs))
        outputs = [self.new(v.aval, leaves, varies) for v in eqn.outvars]
        self.operations.append(Operation(eqn.primitive, eqn.params, eqn.ctx, tuple(inputs), tuple(outputs)))
        return outputs


def opened(body: Any) -> tuple[Any, Sequence[Any]]:
    """The jaxpr in a parameter of an operation, and its constants; closed or not, as versions of JAX differ."""
    return (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())


def _only_step(scan: Any) -> ClosedJaxpr:
    """The step of a scan that has one, as of a map over the records of a batch of one."""
    first, split = _parts_of(scan)
    step, consts = opened(scan.params["jaxpr"])

    def once(*operands: Any) -> list[Any]:
        slices = [jax.lax.squeeze(whole, [0]) for whole in operands[split:]]
        outputs = eval_jaxpr(step, consts, *operands[:split], *slices)
        return [*outputs[: split - first], *(jax.lax.expand_dims(part, [0]) for part in outputs[split - first :])]

    return jax.make_jaxpr(once)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in scan.invars))


def _parts_of(scan: Any) -> tuple[int, int]:
    """Where, among a scan's operands, the carried values begin, and where the slices do."""
    if "ft_in" in scan.params:  # from jax 0.11 on
        consts, carry, _ = scan.params["ft_in"].unpack()
        return len(list(consts)), len(list(consts)) + len(list(carry))
    return scan.params["num_consts"], scan.params["num_consts"] + scan.params["num_carry"]


def trace(function: Callable[..., Any], leaves: Sequence[Any], example: Sequence[Any], trained: int) -> Program:
    """Traces `function(leaves, *example)`, which returns a scalar, without computing it; gradients are wanted of the
    first `trained` leaves.
    """
    closed = jax.make_jaxpr(function)(list(leaves), *example)
    tracing, split = _Tracing(), len(leaves)
    arguments = [
        tracing.new(v.aval, [index] if index < trained else (), index >= split)
        for index, v in enumerate(closed.jaxpr.invars)
    ]
    (output,) = tracing.inline(closed, arguments)
    return Program(
        tracing.operations,
        tracing.types,
        tracing.constants,
        arguments[:split],
        arguments[split:],
        output,
        tracing.depends,
        tracing.of_example,
    )
