"""Loads weights into a module by name, and names the arrays of a module; every array must fit."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxaudit.data.weights import FROM_PYTORCH, pytorch_names
from jaxaudit.errors import InputError, few
from jaxaudit.models.bridge import PARAMS, LinenState
from jaxaudit.models.module import PureModule, abstract_key

SHOWN = 3
AROUND = re.compile(r"^(?:(?:module|_orig_mod|params)/)+|/(?:raw_)?value$")
"""What stands around a name: prefixes of `DataParallel`, `torch.compile` and Linen, and the ends that NNX adds."""


class Restored(NamedTuple):
    """A module with weights, as from `PureModule.init`, and remarks; keys and counters of random layers are zeros."""

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

    Names may be those of `name_weights`, with these variations and no others: `.` in place of `/`; with or without the
    outer `params`, the final `value` that NNX adds, or the prefix `module.` or `_orig_mod.` of PyTorch's wrappers.
    Arrays that PyTorch does not save are taken from the module. Arrays of another float type are converted.

    Args:
        source, model: the names of the weights and of the module in messages.
    """
    params, state = jax.eval_shape(net.init, abstract_key())
    of_params, of_state = dict(_named(params)), dict(_named(state))
    all_leaves = {name: leaf for name, leaf in of_state.items() if name not in of_params} | of_params
    # Keys and counters of random layers may be in a file; evaluation does not use them.
    random = {name for name, leaf in _places(state) if _is_random(leaf)}
    needed_names = {*all_leaves, *random, *net.origin.second_names} - net.origin.unsaved.keys()
    arrays = _without_second_names(_spelled_like(weights, needed_names), net.origin.second_names, source)
    arrays = {**net.origin.unsaved, **{name: values for name, values in arrays.items() if name not in random}}
    faults = _faults(arrays, all_leaves)
    foreign = pytorch_names(weights) if faults and net.origin.framework != "torch" else []
    if foreign:
        shapes = [f"{name} {leaf.shape}" for name, leaf in all_leaves.items()]
        raise InputError(
            f"{source} has weights with PyTorch's names ({few(foreign, SHOWN)}), but {model} needs "
            f"{few(shapes, SHOWN)}. {FROM_PYTORCH}."
        )
    if faults:
        raise InputError(
            f"{source} does not fit {model}: {'; '.join(faults)}. Is it of another network, or of its parameters "
            "without its state, such as running statistics? Save the whole model."
        )
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


def _spelled_like(weights: Mapping[str, np.ndarray], needed_names: set[str]) -> dict[str, np.ndarray]:
    """The weights under the needed names that are theirs but for what stands around them; unless two are the same."""
    needed_by_bare = {_bare(name): name for name in needed_names}
    spelled = {needed_by_bare.get(_bare(name), name): values for name, values in weights.items()}
    is_clear = len(needed_by_bare) == len(needed_names) and len(spelled) == len(weights)
    return spelled if is_clear else dict(weights)


def _bare(name: str) -> str:
    return AROUND.sub("", name.replace(".", "/"))


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
    unlike = [
        f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}, not {leaf.dtype} of shape {leaf.shape}"
        for name, leaf in needed_leaves.items()
        if name in arrays and (arrays[name].shape != leaf.shape or _kind(arrays[name].dtype) != _kind(leaf.dtype))
    ]
    faults_by_title = {
        "missing: ": [name for name in needed_leaves if name not in arrays],
        "unexpected: ": [name for name in arrays if name not in needed_leaves],
        "": unlike,
    }
    return [f"{title}{few(names, SHOWN)}" for title, names in faults_by_title.items() if names]


def _kind(dtype: Any) -> str:
    """The kind of a dtype: arrays are converted within floats and within integers, but not between other kinds."""
    for kind in (jnp.floating, jnp.integer, jnp.complexfloating):
        if jnp.issubdtype(dtype, kind):
            return kind.__name__
    return str(dtype)


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
