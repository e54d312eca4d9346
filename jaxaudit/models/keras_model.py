"""Converts a Keras 3 model on its JAX backend to pure functions: trainable variables are parameters, others are state.

Keras is imported only in this module, and only for a Keras model. Of a saved model only the weights are read: no class,
function or configuration that a file names.
"""

import importlib
import random
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.memory import MAX_BYTES, refuse_larger
from jaxaudit.data.paths import file_size, open_data
from jaxaudit.errors import InputError
from jaxaudit.models.module import Origin, PureModule

SUFFIXES = (".keras", ".weights.h5")
MEMBER = "model.weights.h5"
NOT_OF_THE_MODEL = ("/optimizer", "/metrics", "/compile")
SEED = 1
MODEL_BACKEND = "jax"


def is_keras_model(value: Any) -> bool:
    """Whether `value` is a Keras model, decided without importing Keras."""
    keras = sys.modules.get("keras")
    return keras is not None and hasattr(keras, "Model") and isinstance(value, keras.Model)


def is_keras_file(path: Path) -> bool:
    """Whether a file has the name of one in which Keras saves weights.

    >>> is_keras_file(Path("net.keras")), is_keras_file(Path("net.safetensors"))
    (True, False)
    """
    return path.name.lower().endswith(SUFFIXES)


@contextmanager
def built_by_keras() -> Iterator[None]:
    """A context in which a Keras model can be built, even while JAX traces; its weights have a fixed seed."""
    keras: Any = sys.modules.get("keras")
    if keras is None or not hasattr(keras, "utils"):
        yield
        return
    before = random.getstate(), np.random.get_state()  # noqa: NPY002 (Keras seeds it)
    try:
        with jax.ensure_compile_time_eval():
            keras.utils.set_random_seed(SEED)
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def keras_functions(model: Any, name: str, input_shape: tuple[int, ...]) -> PureModule:
    """The pure functions of a Keras model on the JAX backend, in evaluation mode; `name` is for messages.

    Arrays are named by the paths of the model's variables. `init` returns the weights that the model was built with.
    """
    keras: Any = importlib.import_module("keras")
    if keras.backend.backend() != MODEL_BACKEND:
        raise InputError(
            f"the model {name} is a Keras model on the backend {keras.backend.backend()}; here Keras must compute with "
            f"JAX: set the environment variable KERAS_BACKEND={MODEL_BACKEND} before it is imported."
        )
    mode = {"training": False} if getattr(model, "_call_has_training_arg", True) else {}
    if not model.built:
        with built_by_keras():
            model(jnp.zeros((1, *input_shape), jnp.float32), **mode)
    # Layers that turn their weights into constants when they are loaded (as after `adapt`), irreversibly.
    constant = (layer for layer in model._flatten_layers() if hasattr(layer, "finalize_state"))
    adapted = [layer.name for layer in constant if getattr(layer, "input_mean", None) is None]
    if adapted:
        raise InputError(
            f"the model {name} has a layer with state beside its variables ({adapted[0]}), which its weights do not "
            "bring; prepare the records before, or give the layer its numbers (Normalization(mean=, variance=))."
        )
    trained = {variable.path: variable for variable in model.trainable_variables}
    rest = {variable.path: variable for variable in model.non_trainable_variables}
    if len(trained) + len(rest) != len(model.variables):
        raise InputError(f"the model {name} has variables of the same path; give its layers names of their own.")
    first = tuple({path: np.asarray(variable.value) for path, variable in of.items()} for of in (trained, rest))

    def init(key: Key[Array, ""]) -> tuple[Any, Any]:
        return jax.tree.map(jnp.asarray, first)

    def apply(params: Any, state: Any, inputs: Array, training: bool) -> tuple[Any, Any]:
        if training:
            raise InputError(f"the model {name} is of Keras, which is not trained here: see jaxaudit shadows plan.")
        variable_values = [[of[path] for path in names] for of, names in ((params, trained), (state, rest))]
        return model.stateless_call(*variable_values, inputs, **mode)[0], state

    def outputs(params: Any, state: Any, inputs: np.ndarray) -> np.ndarray:
        with _holding(trained, params), _holding(rest, state):
            return np.asarray(model(np.asarray(inputs, np.float32), **mode))

    def read(path: Path) -> dict[str, np.ndarray]:
        with _kept({**trained, **rest}):
            _load(model, path)
            return {name: np.asarray(variable.value) for name, variable in {**trained, **rest}.items()}

    draws = any(path.endswith("seed_generator_state") for path in rest)
    return PureModule(init, apply, False, draws, False, Origin("keras", outputs, read=read))


@contextmanager
def _kept(variables: Mapping[str, Any]) -> Iterator[None]:
    before = {path: variable.value for path, variable in variables.items()}
    try:
        yield
    finally:
        for path, variable in variables.items():
            variable.assign(before[path])


@contextmanager
def _holding(variables: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[None]:
    with _kept(variables):
        for path, variable in variables.items():
            variable.assign(values[path])
        yield


def _load(model: Any, path: Path) -> None:
    """Loads the weights of a file into the model; sizes in the file are checked before Keras opens it."""
    wrong = f"{path}: is no whole file of Keras weights"
    with tempfile.TemporaryDirectory() as folder, parsing(wrong, "was it written to its end?"):
        weights = Path(folder) / MEMBER
        # A copy: Keras opens the file again by its name, and it must be the one that was checked.
        with open_data(path) as file:
            if path.name.lower().endswith(".keras"):
                with zipfile.ZipFile(file) as archive:
                    size = archive.getinfo(MEMBER).file_size
                    refuse_larger(path, size, MAX_BYTES, "save only the weights")
                    with archive.open(MEMBER) as member:
                        weights.write_bytes(member.read(size))
            else:
                refuse_larger(path, file_size(file), MAX_BYTES, "save only the weights")
                with weights.open("xb") as copy:
                    shutil.copyfileobj(file, copy)
        file_arrays = _arrays(weights, path)
        model_file = Path(folder) / "own.weights.h5"
        model.save_weights(model_file)
        if file_arrays != _arrays(model_file, path):
            raise InputError(
                f"{path}: does not fit the model: it has {len(file_arrays)} arrays, and not those that the model would "
                "save. Is it of another network, or of another number of classes (`classes`)?"
            )
        model.load_weights(weights)


def _arrays(weights: Path, path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a file's arrays by name, without those of the optimizer.

    Refuses arrays that are stored outside of the file, need more memory than allowed, or have numbers that are not
    finite.
    """
    h5py: Any = importlib.import_module("h5py")
    shapes: dict[str, tuple[int, ...]] = {}
    total, seen = 0, set()

    def visit(group: Any) -> None:
        nonlocal total
        for name in group:
            node = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
            place = None if node is None else h5py.h5o.get_info(node.id).addr
            if isinstance(node, h5py.Group) and place not in seen:
                seen.add(place)
                visit(node)
                continue
            if node is None or place in seen or node.external or node.is_virtual or node.dtype.kind not in "fiub":
                raise InputError(
                    f"{path}: {name[:40]} is a link, is there twice, lies in another file, or is no array of numbers; "
                    "save the weights again."
                )
            seen.add(place)
            # A chunk is read as a whole, and may be larger than its array.
            total += max(prod(node.shape), prod(node.chunks or ())) * node.dtype.itemsize
            refuse_larger(path, total, MAX_BYTES, "save only the weights")
            if node.dtype.kind == "f" and not np.isfinite(node[...]).all():
                raise InputError(f"{path}: {node.name[:80]} has NaN or infinite numbers; did training diverge?")
            if not node.name.startswith(NOT_OF_THE_MODEL):
                shapes[node.name] = node.shape

    with h5py.File(weights, "r") as file:
        visit(file)
    return shapes
