"""PyTorch modules as they are, beside PyTorch itself."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.cli_runs import jaxaudit, process
from support.pure_modules import KEY, images
from support.torch_twins import squared_norms, state_of

from jaxaudit import Examples, load_weights
from jaxaudit.audits import NamedWeights, measure_efficacy
from jaxaudit.errors import InputError
from jaxaudit.learners import network
from jaxaudit.models import name_weights, pure_module

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the torch extra)")
pytest.importorskip("torchax", reason="torchax is not installed (the torch extra)")
nn = torch.nn


class Plain(nn.Module):
    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, num_classes)

    def forward(self, inputs: Any) -> Any:
        return self.second(torch.tanh(self.first(inputs)))


class Pixels(nn.Module):
    """Convolution, both normalisations, a frozen parameter, a buffer, a plain tensor, a weight of two names."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(input_shape[-1], 8, 3, padding=1)
        self.batch, self.group = nn.BatchNorm2d(8), nn.GroupNorm(2, 8)
        self.dense = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.dense.weight
        self.output = nn.Linear(8, classes)
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)
        self.register_buffer("steps", torch.zeros(()))
        self.scale = torch.full((8,), 0.5)
        self.listed = nn.ParameterList([torch.ones(8)])

    def forward(self, inputs: Any) -> Any:
        if self.training:
            self.steps += 1
        maps = self.group(torch.relu(self.batch(self.conv(inputs))))
        hidden = self.tied(torch.relu(self.dense(maps.mean((2, 3))))) * self.scale * self.frozen * self.listed[0]
        return self.output(hidden + torch.arange(8) * torch.zeros(len(inputs), 1))


def channels_first(inputs: np.ndarray) -> Any:
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(inputs, -1, 1)))


def test_training_is_that_of_a_pytorch_loop():
    """From the same weights, on the same minibatches: all parameters and all buffers, after six steps."""
    shape = (4, 4, 2)
    learner = network(Pixels, shape, 3, optimizer=optax.sgd(0.1, momentum=0.9), epochs=1, batch_size=10)
    state, module = learner.init(KEY), Pixels(shape, 3)
    weights = {name: torch.from_numpy(np.array(each)) for name, each in name_weights(state.params, state.state).items()}
    module.load_state_dict({name: weights[name.replace("tied.weight", "dense.weight")] for name in module.state_dict()})
    optimizer = torch.optim.SGD([each for each in module.parameters() if each.requires_grad], lr=0.1, momentum=0.9)
    step = jax.jit(lambda state, *batch: learner.update(state, *learner.gradient(state, *batch)))
    records, classes = images(60, *shape), np.arange(60, dtype=np.int32) % 3
    for start in range(0, 60, 10):
        inputs, labels = records[start : start + 10], classes[start : start + 10]
        state = step(state, inputs, labels, np.ones(10, np.float32))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(channels_first(inputs)), torch.from_numpy(labels).long()).backward()
        optimizer.step()
    ours = name_weights(state.params, state.state)
    found = {name: each.numpy() for name, each in module.state_dict().items() if name != "tied.weight"}
    assert found.keys() == ours.keys() - {"scale"}
    for name, each in found.items():
        np.testing.assert_allclose(ours[name], each, rtol=1e-4, atol=1e-5, err_msg=name)
    shown = nn.functional.log_softmax(module.eval()(channels_first(records[:10])), 1).detach().numpy()
    mine = learner.log_probs(learner.finish(state), jnp.asarray(records[:10]))
    np.testing.assert_allclose(mine, shown, rtol=1e-4, atol=1e-5)


def test_weights_are_drawn_by_the_key_alone():
    net = pure_module(Plain, (4,), 3)
    before = torch.get_rng_state()
    keys = jax.random.split(KEY, 3)
    first, again = (jax.jit(jax.vmap(net.init))(keys)[0]["first.weight"] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[1], net.init(keys[1])[0]["first.weight"])
    assert len(np.unique(np.asarray(first[:, 0, 0]))) == 3
    # nn.Linear draws uniformly from within one over the root of its inputs.
    assert np.abs(first).max() <= 0.5
    assert torch.equal(before, torch.get_rng_state())


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense, self.dropout = nn.Linear(4, 3), nn.Dropout(0.25)

    def forward(self, inputs: Any) -> Any:
        return self.dropout(self.dense(inputs))


def test_dropout_draws_from_the_key_of_the_state():
    net = pure_module(Dropped, (4,), 3)
    assert (net.draws, net.batch_coupled) == (True, False)
    params, state = net.init(KEY)
    inputs = jnp.asarray(images(4000, 4))
    apply = jax.jit(net.apply, static_argnums=3)
    whole, kept = apply(params, state, inputs, False)
    first, moved = apply(params, state, inputs, True)
    again, _ = apply(params, state, inputs, True)
    second, _ = apply(params, moved, inputs, True)
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first == 0) != np.asarray(second == 0)).any()
    np.testing.assert_allclose(first[first != 0], (whole / 0.75)[first != 0], rtol=1e-5)
    # 12,000 draws of 1/4: the share is within 0.016 but once in 20,000 keys, and the key is fixed.
    assert abs(float(jnp.mean(first == 0)) - 0.25) < 0.016
    assert jax.random.key_data(kept.key).tolist() == jax.random.key_data(state.key).tolist()


def plainly(self: Any, inputs: Any) -> Any:
    return self.layer(inputs)


def of_forward(
    forward: Callable[[Any, Any], Any] = plainly, layers: Callable[[], Any] = lambda: nn.Linear(4, 3)
) -> Any:
    """A class of modules with one layer and this forward pass."""

    def start(self: Any) -> None:
        nn.Module.__init__(self)
        self.layer = layers()

    return type("Odd", (nn.Module,), {"__init__": start, "forward": forward})


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (lambda images: images.sum((2, 3)).repeat(1, 2)[:, :3], lambda images: images.sum((1, 2))[:, [0, 1, 0]]),
        # As PyTorch's users flatten: one channel after another.
        (lambda images: images.flatten(1)[:, :3], lambda images: images[:, 0, :3, 0]),
    ],
)
def test_channels_go_where_the_module_wants_them(shown: Any, expected: Any):
    net = pure_module(of_forward(lambda self, inputs: shown(inputs) + 0 * self.layer.bias), (5, 4, 2), 3)
    inputs = images(6, 5, 4, 2)
    outputs = net.apply(*net.init(KEY), jnp.asarray(inputs), False)[0]
    np.testing.assert_allclose(outputs, expected(inputs), rtol=1e-5, atol=1e-5)


def hidden_gradient(self: Any, inputs: Any) -> Any:
    outputs = self.layer(inputs)
    with torch.no_grad():
        scale = outputs.square().sum(1, keepdim=True)
    return outputs * scale


def seeded_elsewhere() -> Any:
    layer = nn.Linear(4, 3)
    nn.init.constant_(layer.bias, float(np.random.default_rng().random()))
    return layer


KEPT, OUTSIDE = Plain(), torch.ones(3, 3)
REFUSED = [
    (KEPT, ["Plain", "its weights"]),
    (lambda: KEPT, ["same module at every call"]),
    (of_forward(layers=lambda: nn.LazyLinear(3)), ["shadows plan"]),
    (of_forward(layers=seeded_elsewhere), ["PyTorch's seed", "numpy"]),
    (of_forward(lambda self, inputs: nn.functional.dropout(self.layer(inputs))), ["shadows plan"]),
    (of_forward(lambda self, inputs: self.layer(inputs) - self.layer(inputs).mean(0)), ["other records", "batch"]),
    (of_forward(lambda self, inputs: self.layer(inputs) / 0), ["not the same outputs"]),
    (of_forward(lambda self, inputs: (self.layer(inputs), 0)), ["tuple", "shadows plan"]),
    (of_forward(lambda self, inputs: self.layer(inputs)[:, :2]), [r"\(2, 2\)", r"\(2, 3\)"]),
    (of_forward(layers=lambda: nn.Linear(7, 3)), [r"\(4,\)", "7"]),
    (of_forward(lambda self, inputs: self.layer(inputs) * (2 if inputs.sum() > 0 else 1)), ["shadows plan"]),
    (of_forward(hidden_gradient), ["gradient", "no_grad", "shadows plan"]),
    (of_forward(lambda self, inputs: self.layer(inputs) @ OUTSIDE), ["torch.Tensor", "shadows plan"]),
    (of_forward(layers=lambda: nn.BatchNorm1d(4, momentum=None)), ["running statistics and a momentum"]),
    (of_forward(layers=lambda: nn.InstanceNorm1d(4, track_running_stats=True)), ["InstanceNorm1d", "shadows plan"]),
    (of_forward(lambda self, inputs: self.layer(inputs)[0], lambda: nn.LSTM(4, 3)), [r"\(layer\)", "shadows plan"]),
    (of_forward(lambda self, inputs: self.layer(inputs).detach()), ["grad", "shadows plan"]),
]


@pytest.mark.parametrize(("factory", "words"), REFUSED)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_what_a_module_does_not_allow_is_refused_by_name(factory: Any, words: list[str]):
    with pytest.raises(InputError) as caught:
        pure_module(factory, (4,), 3)
    for word in words:
        assert caught.match(word)


@pytest.mark.outer
def test_nothing_of_pytorch_is_imported_for_flax_and_jax_keeps_its_options():
    code = """
        import os, sys, jax
        before, environment = dict(jax.config.values), dict(os.environ)
        from jaxaudit.models import MLP, pure_module
        pure_module(MLP, (4,), 3)
        assert not {"torch", "torchax"} & sys.modules.keys()
        import torch
        torch.manual_seed(1)
        pure_module(lambda: torch.nn.Linear(4, 3), (4,), 3)
        assert "torchax" in sys.modules
        assert jax.config.values == before, {k for k, v in before.items() if jax.config.values[k] != v}
        assert dict(os.environ) == environment
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr


class Unsaved(nn.Module):
    """One array of two names, a buffer that is not saved, a plain tensor; logits as `transformers` returns them."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, num_classes)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.full((4,), 0.5), persistent=False)
        self.plain = torch.full((4,), 2.0)

    def forward(self, inputs: Any) -> Any:
        return SimpleNamespace(logits=self.out(self.second(torch.tanh(self.first(inputs))) * self.scale * self.plain))


class Tokens(nn.Module):
    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, num_classes)

    def forward(self, tokens: Any) -> Any:
        return self.out(torch.tanh(self.embedding(tokens.long())).mean(1))


def measured(factory: Any, module: Any, inputs: np.ndarray, labels: np.ndarray) -> Any:
    net = pure_module(factory, inputs.shape[1:], 3)
    restored = load_weights(net, state_of(module), "weights", factory.__name__)
    examples = Examples(inputs, labels, ("a", "b", "c"), "records")
    return measure_efficacy(net, NamedWeights("judged", restored.params, restored.state), examples)


class Photographs(nn.Module):
    """As usual in PyTorch: channels, height, width."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 2, (3, 1)), nn.Linear(2 * 3 * 5, num_classes)

    def forward(self, inputs: Any) -> Any:
        return self.out(torch.tanh(self.conv(inputs)).flatten(1))


PADDED = np.random.default_rng(1).integers(0, 9, (6, 5)) * (np.arange(5) < 4)
MEASURED: dict[str, tuple[Any, np.ndarray]] = {
    "what a state dict repeats or lacks is the module's own": (Unsaved, images(7, 4)),
    "gray images get the channel that convolutions want": (Photographs, images(6, 5, 5)),
    "gray images with a channel": (Photographs, images(6, 5, 5, 1)),
    "tokens, whose padding has no gradient": (Tokens, PADDED),
}


@pytest.mark.parametrize("name", MEASURED)
def test_norms_are_those_of_single_backward_passes(name: str):
    torch.manual_seed(3)
    factory, inputs = MEASURED[name]
    module, labels = factory(), np.arange(len(inputs)) % 3
    found = measured(factory, module, inputs, labels)
    records = inputs.reshape(-1, 1, 5, 5) if factory is Photographs else inputs
    np.testing.assert_allclose(found.measured[0].per_example, squared_norms(module, records, labels), rtol=1e-5)
    assert found.result.framework == "torch"
    assert 0 <= found.result.conversion_error < 1e-5
    assert factory is not Tokens or set(found.result.paths.values()) == {"contracted"}


def test_records_that_convolutions_cannot_take_are_refused_with_the_ways_on():
    for shape in ((25,), (5, 5, 3), (1, 5, 5)):
        with pytest.raises(InputError, match=r"for records of shape \(.*file of its outputs.*shadows plan"):
            pure_module(Photographs, shape, 3)


class Probabilities(Plain):
    def forward(self, inputs: Any) -> Any:
        return super().forward(inputs).softmax(-1)


def test_probabilities_are_no_logits():
    with pytest.raises(InputError, match="leave out its last softmax"):
        measured(Probabilities, Probabilities(), images(5, 4), np.arange(5) % 3)


def test_records_that_are_no_tokens_of_the_network_are_refused():
    tokens = np.full((3, 5), 1.0)
    tokens[1, 2] = 9
    with pytest.raises(InputError, match="vocabulary"):
        measured(Tokens, Tokens(), tokens, np.arange(3))


def test_arrays_that_are_one_must_be_equal_in_the_file():
    net, state = pure_module(Unsaved, (4,), 3), state_of(Unsaved())
    with pytest.raises(InputError, match=r"second\.weight and first\.weight"):
        load_weights(net, {**state, "second.weight": state["second.weight"] + 1}, "weights", "Unsaved")


def test_a_function_that_is_not_the_networks_is_refused():
    module, inputs = Plain(), images(5, 4)
    net = pure_module(Plain, (4,), 3)
    restored = load_weights(net, state_of(module), "weights", "Plain")

    def other(params: Any, state: Any, inputs: Any, training: bool) -> Any:
        logits, state = net.apply(params, state, inputs, training)
        return logits.at[0].multiply(1 + 1e-3), state

    examples = Examples(inputs, np.arange(5) % 3, ("a", "b", "c"), "records")
    with pytest.raises(InputError, match=r"1\.\de-03|[5-9]\.\de-04"):
        measure_efficacy(net._replace(apply=other), NamedWeights("judged", restored.params, restored.state), examples)


NET = """
import math
from torch import nn

class Net(nn.Sequential):
    def __init__(self, input_shape, num_classes=10):
        numbers = math.prod(input_shape)
        layers = nn.Flatten(), nn.Linear(numbers, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, num_classes)
        super().__init__(*layers)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_module_in_a_file_is_audited_on_embedded_data(own: Path):
    words = ("ks", "--model", "net.py:Net", "--epochs", "2", "--sample", "100", "--tests", "rho", "--effort", "full")
    more = ("--test-option", "rho.replicates=2", "--recipe", "models-per-batch=4", "--json")
    first, again = (jaxaudit(*words, *more).result for _ in range(2))
    assert first["targets"] == again["targets"]
    assert first["provenance"]["versions"].keys() >= {"torch", "torchax"}


@pytest.mark.outer
def test_without_pytorch_the_pip_line_is_named(own: Path):
    (own / "torch.py").write_text("raise ModuleNotFoundError('away', name='torch')")
    done = process("ks", "--model", "net.py:Net", cwd=own)
    assert (done.code, done.out) == (2, "")
    assert "pip install 'jaxaudit[torch]'" in done.err
