"""Recurrent layers of PyTorch, beside PyTorch itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.pure_modules import images
from support.torch_twins import squared_norms, state_of

from jaxaudit.kernels.gradient_norms import squared_grad_norms
from jaxaudit.models import pure_module
from jaxaudit.models.restore import load_weights

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the torch extra)")
pytest.importorskip("torchax", reason="torchax is not installed (the torch extra)")
nn = torch.nn

KINDS = {
    "lstm": lambda: nn.LSTM(3, 4, batch_first=True),
    "deep": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True),
    "projected": lambda: nn.LSTM(3, 5, proj_size=2, batch_first=True, bias=False),
    "gru": lambda: nn.GRU(3, 4, num_layers=2, batch_first=True),
    "both ways": lambda: nn.GRU(3, 4, bidirectional=True),
    "rnn": lambda: nn.RNN(3, 4, nonlinearity="relu"),
    "tanh": lambda: nn.RNN(3, 4, bidirectional=True, batch_first=True),
}


class Recurrent(nn.Module):
    """Its outputs are made of all steps and of the last states."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = KINDS[kind]()
        self.out = nn.Linear(self.seen(torch.zeros(2, 5, 3)).shape[1], 3)

    def seen(self, inputs: Any) -> Any:
        first = self.layer.batch_first
        outputs, last = self.layer(inputs if first else inputs.transpose(0, 1))
        last = torch.cat(last, -1) if isinstance(last, tuple) else last
        whole = (outputs if first else outputs.transpose(0, 1)).flatten(1)
        return torch.cat([whole, last.transpose(0, 1).flatten(1)], -1)

    def forward(self, inputs: Any) -> Any:
        return self.out(self.seen(inputs))


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_norms_are_those_of_single_backward_passes(kind: str):
    torch.manual_seed(1)
    module = Recurrent(kind).eval()
    inputs, labels = images(4, 5, 3), np.arange(4) % 3
    net = pure_module(lambda: Recurrent(kind), (5, 3), 3)
    restored = load_weights(net, state_of(module), "weights", kind)
    outputs = net.apply(restored.params, restored.state, jnp.asarray(inputs), False)[0]
    np.testing.assert_allclose(outputs, module(torch.from_numpy(inputs)).detach(), rtol=1e-5, atol=1e-6)

    def log_prob(params: Any, inputs: Any, labels: Any) -> Any:
        logits = net.apply(params, restored.state, inputs, False)[0]
        return jax.nn.log_softmax(logits)[np.arange(len(labels)), labels]

    found = squared_grad_norms(log_prob, restored.params, inputs, labels)
    np.testing.assert_allclose(found.total, squared_norms(module, inputs, labels), rtol=1e-5)
    assert set(found.paths_of_leaves) == {"contracted"}


class Single(nn.Module):
    """A record is a sequence without an axis of records, and the first state is a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.start = nn.GRU(3, 3, batch_first=True), nn.Parameter(torch.full((1, 1, 3), 0.5))

    def forward(self, inputs: Any) -> Any:
        alone = torch.stack([self.layer(each, self.start[0])[1][0] for each in inputs])
        return alone + self.layer(inputs, self.start.repeat(1, len(inputs), 1))[0][:, -1]


def test_states_may_be_given_and_records_stand_alone():
    torch.manual_seed(1)
    module, inputs = Single().eval(), images(4, 5, 3)
    net = pure_module(Single, (5, 3), 3)
    restored = load_weights(net, state_of(module), "weights", "Single")
    outputs = net.apply(restored.params, restored.state, jnp.asarray(inputs), False)[0]
    np.testing.assert_allclose(outputs, module(torch.from_numpy(inputs)).detach(), rtol=1e-5, atol=1e-6)
