"""Loads weights into a module by name, and names the arrays of a module; every array must fit."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxaudit.data.weights import FROM_PYTORCH, PYTORCH, pytorch_names
from jaxaudit.errors import InputError
from jaxaudit.models.bridge import PARAMS, LinenState, PureModule

SHOWN = 3
WRAPPERS = ("value", "raw_value")
PYTORCH_WRAPPERS = ("module.", "_orig_mod.", "module/", "_orig_mod/")
"""Prefixes that `DataParallel` and `torch.compile` add to each name of a state, with dots or slashes."""


class Restored(NamedTuple):
    """A module with weights, as `PureModule.init` returns them, and remarks for the result. Keys and counters of random
    layers are zeros.
    """

    params: Any
    state: Any
    notes: tuple[str, ...]


def name_weights(params: Any, state: Any) -> dict[str, np.ndarray]:
    """All arrays of a module by name (the path joined by `/`), without the keys of random layers; parameters of a Linen
    module are below `params`.

    >>> from jaxaudit.models import MLP, pure_module
    >>> net = pure_module(MLP, (4,), 3)
    >>> sorted(name_weights(*net.init(jax.random.key(1))))[:3]
    ['layers/0/bias', 'layers/0/kernel', 'layers/1/bias']
    """
    below = f"{PARAMS}/" if isinstance(state, LinenState) else ""
    leaves_by_name = {f"{below}{name}": np.asarray(leaf) for name, leaf in _named(params)}
    return leaves_by_name | {name: np.asarray(leaf) for name, leaf in _named(state)}


def load_weights(net: PureModule, weights: Mapping[str, np.ndarray], source: str, model: str) -> Restored:
    """The parameters and state of the module `net` with these weights.

    Names may be those of `name_weights`, with these variations and no others: `.` in place of `/`; without the outer
    `params`; with the final `value` that NNX adds; or with the prefix `module.` or `_orig_mod.` of PyTorch's wrappers.
    Arrays that PyTorch does not save are taken from the module. Arrays of another float type are converted.

    Args:
        weights: arrays by name; see `jaxaudit.data.weights.read_weights`.
        source, model: the names of the weights and of the module in messages.

    Raises:
        InputError: an array is missing, unknown, of another shape or type, or too large for the module's type.
    """
    params, state = jax.eval_shape(net.init, jax.eval_shape(jax.random.key, 1))
    of_params, of_state = dict(_named(params)), dict(_named(state))
    all_leaves = {name: leaf for name, leaf in of_state.items() if name not in of_params} | of_params
    # Keys and counters of random layers may be in a file; evaluation does not use them.
    random = {name for name, leaf in _places(state) if _is_random(leaf)}
    spelled = _spelled_like(dict(weights), {*all_leaves, *random, *net.origin.second_names} - net.origin.unsaved.keys())
    arrays = _without_second_names({**spelled}, net.origin.second_names, source)
    arrays = {**net.origin.unsaved, **{name: values for name, values in arrays.items() if name not in random}}
    missing_state = [name for name in of_state if name not in arrays]
    if missing_state and arrays.keys() == of_params.keys():
        raise InputError(
            f"{source} has the parameters of {model} but not its state ({_some(missing_state)}), which evaluation "
            "needs, such as the running statistics of batch normalisation; save the whole model: "
            "nnx.state(model), or all variables of a Linen module."
        )
    faults = _faults(arrays, all_leaves)
    foreign = pytorch_names(weights) if faults and net.origin.framework != "torch" else []
    if foreign:
        needed_names = [f"{name} {leaf.shape}" for name, leaf in (of_params | of_state).items()]
        raise InputError(
            f"{source} has weights with PyTorch's names ({_some(foreign)}), but {model} needs {_some(needed_names)}. "
            f"{FROM_PYTORCH}."
        )
    if faults:
        raise InputError(f"{source} does not fit {model}: {'; '.join(faults)}.{_likely_reason(arrays, all_leaves)}")
    cast = {name: _cast(arrays[name], leaf, name, source) for name, leaf in all_leaves.items()}
    floats = [name for name, leaf in all_leaves.items() if jnp.issubdtype(leaf.dtype, jnp.floating)]
    other = [name for name in floats if arrays[name].dtype != all_leaves[name].dtype]
    converted, kinds = (sorted({str(of[name].dtype) for name in other}) for of in (arrays, all_leaves))
    notes = (f"{source}: converted from {', '.join(converted)} to {', '.join(kinds)}",) if other else ()
    return Restored(_filled(params, cast), _filled(state, cast), notes)


def _is_variable(node: Any) -> bool:
    return isinstance(node, nnx.Variable)


def _is_random(leaf: Any) -> bool:
    return isinstance(leaf, nnx.RngState) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _places(tree: Any) -> Iterator[tuple[str, Any]]:
    """Every leaf with its name, which leaves out attributes (the fields of a state)."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_variable):
        yield _name(path), leaf


def _name(path: Any) -> str:
    words = tuple(step for step in path if not isinstance(step, jax.tree_util.GetAttrKey))
    return jax.tree_util.keystr(words, simple=True, separator="/")


def _named(tree: Any) -> Iterator[tuple[str, Any]]:
    for name, leaf in _places(tree):
        if not _is_random(leaf):
            yield name, leaf.get_value() if _is_variable(leaf) else leaf


def _spelled_like(weights: dict[str, np.ndarray], needed_names: set[str]) -> dict[str, np.ndarray]:
    """The weights, with the spelling of their names that matches the wanted names best."""
    spellings = [weights]
    for respell in (_slashes, _unwrapped, _outside_params, _outside_params, _inside_wrapper, _inside_wrapper):
        for spelling in tuple(spellings):
            names = [respell(name, list(spelling)) for name in spelling]
            if len(set(names)) == len(names) and names != list(spelling):
                spellings.append(dict(zip(names, spelling.values(), strict=True)))
    return min(spellings, key=lambda spelling: len(spelling.keys() ^ needed_names))


def _slashes(name: str, names: list[str]) -> str:
    return name if any("/" in name_there for name_there in names) else name.replace(".", "/")


def _unwrapped(name: str, names: list[str]) -> str:
    first, _, last = name.rpartition("/")
    return first if first and last in WRAPPERS else name


def _outside_params(name: str, names: list[str]) -> str:
    return re.sub(f"^{PARAMS}/", "", name)


def _inside_wrapper(name: str, names: list[str]) -> str:
    wrapped = next(
        (wrapper for wrapper in PYTORCH_WRAPPERS if all(weight_name.startswith(wrapper) for weight_name in names)), ""
    )
    return name.removeprefix(wrapped)


def _without_second_names(
    weights: dict[str, np.ndarray], second_names: Mapping[str, str], source: str
) -> dict[str, np.ndarray]:
    for again, first in second_names.items():
        values = weights.pop(again, None)
        if values is None:
            continue
        if not np.array_equal(weights.setdefault(first, values), values):
            raise InputError(
                f"{source}: {again} and {first} are one array in this network, and differ in the file; is it of "
                "another network, whose weights are not shared?"
            )
    return weights


def _faults(arrays: Mapping[str, np.ndarray], needed_leaves: Mapping[str, Any]) -> list[str]:
    matched = [(name, arrays[name], leaf) for name, leaf in needed_leaves.items() if name in arrays]
    faults_by_title = {
        "missing: ": [name for name in needed_leaves if name not in arrays],
        "unexpected: ": [name for name in arrays if name not in needed_leaves],
        "": [
            f"{name} has shape {ours.shape}, not {leaf.shape}"
            for name, ours, leaf in matched
            if ours.shape != leaf.shape
        ],
    }
    other = [match for match in matched if _kind(match[1].dtype) != _kind(match[2].dtype)]
    kinds = [f"{name} has type {ours.dtype}, not {leaf.dtype}" for name, ours, leaf in other]
    return [f"{title}{_some(names)}" for title, names in (*faults_by_title.items(), ("", kinds)) if names]


def _likely_reason(arrays: Mapping[str, np.ndarray], needed_leaves: Mapping[str, Any]) -> str:
    """A sentence with the likely reason why weights do not fit; empty if none is known."""
    missing, spare = needed_leaves.keys() - arrays.keys(), arrays.keys() - needed_leaves.keys()
    pairs = [(arrays[name].shape, needed_leaves[name].shape) for name in needed_leaves.keys() & arrays.keys()]
    unlike = [(ours, needed_shape) for ours, needed_shape in pairs if ours != needed_shape]
    if missing and not spare and all(name.endswith(PYTORCH) for name in missing):
        return " Batch normalisation needs its running statistics: save the whole state_dict(), not parameters() alone."
    if missing and len(missing) == len(spare):
        shapes = [
            sorted(tuple(of[name].shape) for name in names) for of, names in ((needed_leaves, missing), (arrays, spare))
        ]
        if shapes[0] == shapes[1]:
            return " The shapes of those are the same: were layers renamed?"
    if unlike and all(len(ours) > 1 and ours == needed_shape[::-1] for ours, needed_shape in unlike):
        return " Their axes are in the opposite order: were kernels transposed for another framework?"
    sizes = {
        pair for ours, needed_shape in unlike for pair in zip(ours, needed_shape, strict=False) if pair[0] != pair[1]
    }
    if len(sizes) == 1 and all(len(ours) == len(needed_shape) for ours, needed_shape in unlike):
        ours, needed_shape = sizes.pop()
        return f" They have {ours} where the network has {needed_shape}: is it another number of outputs (classes)?"
    return ""


def _kind(dtype: Any) -> str:
    """The kind of a dtype: arrays are converted within floats and within integers, but not between other kinds."""
    for kind in (jnp.floating, jnp.integer, jnp.complexfloating):
        if jnp.issubdtype(dtype, kind):
            return kind.__name__
    return str(dtype)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _cast(values: np.ndarray, leaf: Any, name: str, source: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        cast = values.astype(leaf.dtype)
    if jnp.issubdtype(cast.dtype, jnp.floating) and not np.isfinite(cast).all():
        raise InputError(f"{source}: {name} has numbers too large for {leaf.dtype}; did training diverge?")
    return cast


def _zeros(leaf: Any) -> Any:
    """Zeros in place of the key or counter of a random layer, which evaluation does not use."""
    of = leaf.get_value() if _is_variable(leaf) else leaf
    if not jnp.issubdtype(of.dtype, jax.dtypes.prng_key):
        return jnp.zeros(of.shape, of.dtype)
    words = jax.eval_shape(jax.random.key_data, of)
    return jax.random.wrap_key_data(jnp.zeros(words.shape, words.dtype))


def _filled(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    def fill(path: Any, leaf: Any) -> Any:
        values = _zeros(leaf) if _is_random(leaf) else jnp.asarray(arrays[_name(path)])
        return leaf.replace(values) if _is_variable(leaf) else values

    return jax.tree_util.tree_map_with_path(fill, tree, is_leaf=_is_variable)
