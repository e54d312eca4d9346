"""Keras models as they are, beside Keras itself."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file
from support.cli_runs import jaxaudit
from support.pure_modules import KEY, images

from jaxaudit.data.weights import read_weights
from jaxaudit.errors import InputError
from jaxaudit.models import pure_module

with pytest.MonkeyPatch.context() as patch:
    patch.setenv("KERAS_BACKEND", "jax")
    keras: Any = pytest.importorskip("keras", reason="Keras is not installed (the keras extra)")
# Keras's own, of NumPy.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


NET = """
import keras

def build(num_classes):
    layers = keras.layers
    return keras.Sequential([layers.Input((4, 4, 2)), layers.Conv2D(3, 3, activation="relu"),
        layers.BatchNormalization(), layers.Flatten(), layers.Dropout(0.2), layers.Dense(num_classes)])
"""


def network() -> Any:
    namespace: dict[str, Any] = {}
    exec(NET, namespace)
    return namespace["build"](3)


def trained(folder: Path) -> Any:
    """A model whose running statistics have moved, and its file, as the refusal of Keras's own says."""
    model = network()
    for _ in range(3):
        model(images(20, 4, 4, 2), training=True)
    save_file({f"{i:03}/{v.name}": np.asarray(v) for i, v in enumerate(model.weights)}, folder / "net.safetensors")
    return model


def slow_norms(model: Any, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of each record's gradient, by a gradient a record."""
    rest = [each.value for each in model.non_trainable_variables]

    def loss(trained: Any, record: Any, label: Any) -> Any:
        return jax.nn.log_softmax(model.stateless_call(trained, rest, record[None], training=False)[0])[0, label]

    trained = [each.value for each in model.trainable_variables]
    gradients = [jax.grad(loss)(trained, jnp.asarray(each), label) for each, label in zip(inputs, labels, strict=True)]
    return np.array([sum(float(jnp.sum(leaf**2)) for leaf in each) for each in gradients])


def test_a_saved_model_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    model = trained(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    inputs, labels = images(6, 4, 4, 2), np.arange(6) % 3
    np.savez(tmp_path / "forget.npz", x=inputs, y=labels)
    words = ("--model", "net.py:build", "--data", "forget.npz", "--classes", "3", "--json")
    result = jaxaudit("efficacy", *words, "--params", "net.safetensors").result
    assert (result["framework"], result["models"][0]["conversion_error"]) == ("keras", None)
    assert set(result["paths"].values()) == {"contracted"}
    assert result["models"][0]["information"] == pytest.approx(slow_norms(model, inputs, labels).mean(), rel=1e-5)


def test_a_keras_model_is_not_trained_here():
    net = pure_module(lambda num_classes: network(), (4, 4, 2), 3)
    with pytest.raises(InputError, match=r"not trained here.*shadows plan"):
        net.apply(*net.init(KEY), jnp.zeros((1, 4, 4, 2)), True)


def test_statistics_that_loading_turns_into_constants_are_refused():
    def build(num_classes: int) -> Any:
        return keras.Sequential(
            [keras.layers.Input((4,)), keras.layers.Normalization(), keras.layers.Dense(num_classes)]
        )

    with pytest.raises(InputError, match=r"constants of its weights.*shadows plan"):
        pure_module(build, (4,), 3)


@pytest.mark.parametrize("name", ["net.keras", "net.weights.h5"])
def test_a_file_of_keras_is_refused_with_the_line_that_saves_its_variables(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(InputError, match=r"save_file.*model\.weights"):
        read_weights(tmp_path / name)
