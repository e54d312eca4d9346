"""Keras models as they are, beside Keras itself."""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cli_runs import jaxaudit
from support.pure_modules import KEY, images

from jaxaudit.audits.efficacy.audit import NamedWeights, measure_efficacy
from jaxaudit.data.examples import Examples
from jaxaudit.errors import InputError
from jaxaudit.models import pure_module
from jaxaudit.models.keras_model import is_keras_file
from jaxaudit.models.restore import load_weights

h5py: Any = pytest.importorskip("h5py", reason="h5py is not installed (the keras extra)")
# Keras's own, of NumPy.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture(scope="module")
def keras() -> Any:
    if "keras" not in sys.modules:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KERAS_BACKEND", "jax")
            pytest.importorskip("keras", reason="Keras is not installed (the keras extra)")
    return sys.modules["keras"]


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


def saved(keras: Any, folder: Path) -> Any:
    """A model whose running statistics have moved, in both of its forms."""
    model = network()
    for _ in range(3):
        model(images(20, 4, 4, 2), training=True)
    model.save(folder / "net.keras")
    model.save_weights(folder / "net.weights.h5")
    return model


def slow_norms(model: Any, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of each record's gradient, by a gradient a record."""
    rest = [each.value for each in model.non_trainable_variables]

    def loss(trained: Any, record: Any, label: Any) -> Any:
        return jax.nn.log_softmax(model.stateless_call(trained, rest, record[None], training=False)[0])[0, label]

    trained = [each.value for each in model.trainable_variables]
    gradients = [jax.grad(loss)(trained, jnp.asarray(each), label) for each, label in zip(inputs, labels, strict=True)]
    return np.array([sum(float(jnp.sum(leaf**2)) for leaf in each) for each in gradients])


@pytest.mark.parametrize("file", ["net.keras", "net.weights.h5"])
def test_a_saved_model_is_measured(keras: Any, tmp_path: Path, file: str):
    model, inputs, labels = saved(keras, tmp_path), images(6, 4, 4, 2), np.arange(6) % 3
    net = pure_module(lambda num_classes: network(), (4, 4, 2), 3)
    assert net.origin.read is not None
    restored = load_weights(net, net.origin.read(tmp_path / file), file, "net")
    examples = Examples(inputs, labels, ("a", "b", "c"), "records")
    found = measure_efficacy(net, NamedWeights("judged", restored.params, restored.state), examples)
    np.testing.assert_allclose(found.measured[0].per_example, slow_norms(model, inputs, labels), rtol=1e-5)
    assert (found.result.framework, set(found.result.paths.values())) == ("keras", {"contracted"})
    assert found.result.conversion_error == pytest.approx(0, abs=1e-6)


def test_reading_and_asking_leave_the_model_as_it_was(keras: Any, tmp_path: Path):
    saved(keras, tmp_path)
    net = pure_module(lambda num_classes: network(), (4, 4, 2), 3)
    params, state = net.init(KEY)
    assert net.origin.read is not None
    assert net.origin.outputs is not None
    before = net.origin.outputs(params, state, images(4, 4, 4, 2))
    read = net.origin.read(tmp_path / "net.keras")
    assert any(not np.array_equal(read[name], each) for name, each in params.items())
    np.testing.assert_array_equal(net.origin.outputs(params, state, images(4, 4, 4, 2)), before)


def test_a_keras_model_is_not_trained_here(keras: Any):
    net = pure_module(lambda num_classes: network(), (4, 4, 2), 3)
    with pytest.raises(InputError, match="shadows plan"):
        net.apply(*net.init(KEY), jnp.zeros((1, 4, 4, 2)), True)


def test_statistics_that_loading_turns_into_constants_are_refused(keras: Any):
    def build(num_classes: int) -> Any:
        return keras.Sequential(
            [keras.layers.Input((4,)), keras.layers.Normalization(), keras.layers.Dense(num_classes)]
        )

    with pytest.raises(InputError, match="state beside its variables"):
        pure_module(build, (4,), 3)


FAULTS = ["cut", "other", "more", "huge", "chunk", "object", "linked", "nan", "empty"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_is_no_weights_of_this_model_is_refused(keras: Any, tmp_path: Path, fault: str):
    saved(keras, tmp_path)
    path = tmp_path / "net.weights.h5"
    if fault == "cut":
        path.write_bytes(path.read_bytes()[:1000])
    elif fault == "other":
        keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)]).save_weights(path)
    elif fault == "more":
        model = network()
        model.add(keras.layers.Dense(4))
        model.save_weights(path)
    elif fault == "empty":
        path.write_bytes(b"")
    else:
        with h5py.File(path, "a") as file:
            if fault == "huge":
                file.create_dataset("layers/dense/vars/9", (2**40,), "f4", chunks=(2**20,))
            elif fault == "chunk":
                file.create_dataset("layers/dense/vars/9", (4,), "f4", maxshape=(None,), chunks=(2**29,))
            elif fault == "object":
                file.create_dataset("layers/dense/vars/9", data=["a"], dtype=h5py.string_dtype())
            elif fault == "linked":
                file["layers/away"] = h5py.ExternalLink("/etc/passwd", "/x")
            else:
                file["layers/dense/vars/1"][0] = np.nan
    net = pure_module(lambda num_classes: network(), (4, 4, 2), 3)
    assert net.origin.read is not None
    with pytest.raises(InputError, match=r"net\.weights\.h5"):
        net.origin.read(path)


def test_the_command_line_judges_a_saved_model(keras: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    model = saved(keras, tmp_path)
    (tmp_path / "net.py").write_text(NET)
    inputs, labels = images(6, 4, 4, 2), np.arange(6) % 3
    np.savez(tmp_path / "forget.npz", x=inputs, y=labels)
    words = ("--model", "net.py:build", "--data", "forget.npz", "--classes", "3", "--json")
    result = jaxaudit("efficacy", *words, "--params", "net.keras").result
    assert result["framework"] == "keras"
    assert result["models"][0]["information"] == pytest.approx(slow_norms(model, inputs, labels).mean(), rel=1e-4)


def test_a_keras_file_needs_a_keras_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.keras").write_bytes(b"PK")
    np.savez(tmp_path / "forget.npz", x=images(6, 4), y=np.arange(6) % 3)
    words = ("--model", "mlp", "--hidden", "4", "--params", "net.keras", "--data", "forget.npz")
    done = jaxaudit("efficacy", *words)
    assert (done.code, done.out) == (2, "")
    assert "net.keras" in done.err
    assert is_keras_file(tmp_path / "net.keras")
