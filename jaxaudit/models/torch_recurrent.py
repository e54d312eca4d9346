"""Runs PyTorch's recurrent layers as loops in JAX; torchax itself would unroll every step."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxaudit.models.pretrained import pytorch


def loops_stay_loops(module: Any) -> None:
    """Makes every `LSTM`, `GRU` and `RNN` in a module of PyTorch compute by `jax.lax.scan`.

    The inputs of all steps are multiplied by the weights in one product. Packed sequences and modules of single cells
    are left to PyTorch's own code.
    """
    for part in module.modules():
        if type(part) in (pytorch().nn.LSTM, pytorch().nn.GRU, pytorch().nn.RNN):
            part.forward = partial(_forward, part, part.forward)


def _forward(part: Any, layer_forward: Callable[..., Any], inputs: Any, hx: Any = None) -> Any:
    """Replaces the layer's `forward`: returns all outputs, and the last states."""
    torch = pytorch()
    if not isinstance(inputs, torch.Tensor):
        return layer_forward(inputs, hx)
    single = inputs.dim() == 2
    steps = inputs.unsqueeze(1) if single else inputs.transpose(0, 1) if part.batch_first else inputs
    states = _first_states(part, steps, hx, single)
    directions = ("", "_reverse") if part.bidirectional else ("",)
    last: list[tuple[Any, ...]] = []
    for layer in range(part.num_layers):
        if layer and part.dropout:
            steps = torch.nn.functional.dropout(steps, part.dropout, part.training)
        layer_outputs = []
        for number, suffix in enumerate(directions):
            names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if part.bias else [])]
            names += ["weight_hr"] if part.proj_size else []
            weights = {name: getattr(part, f"{name}_l{layer}{suffix}") for name in names}
            start = tuple(state[layer * len(directions) + number] for state in states)
            interop: Any = importlib.import_module("torchax.interop")
            every, end = interop.call_jax(partial(_scanned, part.mode, bool(suffix)), weights, steps, start)
            layer_outputs.append(every)
            last.append(end)
        steps = torch.cat(layer_outputs, -1) if len(layer_outputs) > 1 else layer_outputs[0]
    ends = [torch.stack(direction_ends) for direction_ends in zip(*last, strict=True)]
    ends = [end.squeeze(1) for end in ends] if single else ends
    outputs = steps.squeeze(1) if single else steps.transpose(0, 1) if part.batch_first else steps
    return outputs, tuple(ends) if part.mode == "LSTM" else ends[0]


def _first_states(part: Any, steps: Any, hx: Any, single: bool) -> list[Any]:
    torch = pytorch()
    if hx is not None:
        start_states = list(hx) if part.mode == "LSTM" else [hx]
        return [state.unsqueeze(1) for state in start_states] if single else start_states
    count = part.num_layers * (2 if part.bidirectional else 1)
    sizes = [part.proj_size or part.hidden_size, *([part.hidden_size] if part.mode == "LSTM" else [])]
    return [torch.zeros(count, steps.shape[1], size, dtype=steps.dtype) for size in sizes]


def _scanned(
    mode: str, reverse: bool, weights: dict[str, Array], steps: Array, start: tuple[Array, ...]
) -> tuple[Array, tuple[Array, ...]]:
    """One layer in one direction: its outputs `[steps, n, size]`, and its state after the last step."""
    inward = steps @ weights["weight_ih"].T
    # Both biases in the loop: their cotangents, which are the same ones in an LSTM, then stand in memory once.
    biases = [weights.get(name, 0) for name in ("bias_ih", "bias_hh")]

    def step(state: tuple[Array, ...], of_inputs: Array) -> tuple[tuple[Array, ...], Array]:
        of_hidden = state[0] @ weights["weight_hh"].T
        after = _CELLS[mode](of_inputs + biases[0], of_hidden + biases[1], state)
        if "weight_hr" in weights:
            after = after[0] @ weights["weight_hr"].T, *after[1:]
        return after, after[0]

    last, every = jax.lax.scan(step, start, inward, reverse=reverse)
    return every, last


def _lstm(of_inputs: Array, of_hidden: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
    enters, stays, new, shown = jnp.split(of_inputs + of_hidden, 4, axis=-1)
    memory = jax.nn.sigmoid(stays) * state[1] + jax.nn.sigmoid(enters) * jnp.tanh(new)
    return jax.nn.sigmoid(shown) * jnp.tanh(memory), memory


def _gru(of_inputs: Array, of_hidden: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
    (reset_x, stay_x, new_x), (reset_h, stay_h, new_h) = (jnp.split(gates, 3, -1) for gates in (of_inputs, of_hidden))
    new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
    stays = jax.nn.sigmoid(stay_x + stay_h)
    return ((1 - stays) * new + stays * state[0],)


def _rnn(of_inputs: Array, of_hidden: Array, state: tuple[Array, ...], activation: Callable[..., Array]) -> Any:
    return (activation(of_inputs + of_hidden),)


_CELLS: dict[str, Callable[..., Any]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": partial(_rnn, activation=jnp.tanh),
    "RNN_RELU": partial(_rnn, activation=jax.nn.relu),
}
"""By PyTorch's name of a layer's mode: one step, from its products to its next state (Hochreiter & Schmidhuber 1997;
Cho et al. 2014, with the reset after the product, as PyTorch has it)."""
