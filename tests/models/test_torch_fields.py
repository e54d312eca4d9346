"""PyTorch modules that get several arrays by name, beside PyTorch itself."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.pure_modules import KEY
from support.torch_twins import squared_norms

from jaxaudit.audits.efficacy.audit import NamedWeights, audit_efficacy
from jaxaudit.data.records import Records
from jaxaudit.models import pure_module

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the torch extra)")
pytest.importorskip("torchax", reason="torchax is not installed (the torch extra)")
nn = torch.nn
RANDOM = np.random.default_rng(0)
COUNT, LENGTH, WORDS, CLASSES = 5, 9, 50, 3
IDS = RANDOM.integers(0, WORDS, (COUNT, LENGTH))
MASK = (np.arange(LENGTH) < RANDOM.integers(3, LENGTH + 1, (COUNT, 1))).astype(int)
LABELS = np.arange(COUNT) % CLASSES


class Texts(nn.Module):
    """A mask, and a number that is no whole one."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(WORDS, 4, padding_idx=0), nn.Linear(5, num_classes)

    def forward(self, input_ids: Any, attention_mask: Any, age: Any) -> Any:
        shown = (self.embed(input_ids) * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
        return self.out(torch.cat([torch.tanh(shown), age[:, None]], dim=1))


def bert(num_classes: int) -> Any:
    transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 20, "num_labels": num_classes}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes))


@pytest.mark.parametrize("build", [Texts, bert])
def test_norms_are_those_of_single_backward_passes(build: Callable[[int], Any]):
    arrays = {"input_ids": IDS, "attention_mask": MASK}
    arrays |= {"age": RANDOM.normal(size=COUNT)} if build is Texts else {}
    records = Records(arrays, LABELS, "texts")
    net = pure_module(build, records.inputs.shape[1:], CLASSES, records.fields)
    params, state = net.init(KEY)
    found = audit_efficacy(net, NamedWeights("judged", params, state), records).judged
    module = build(CLASSES).eval()
    with torch.no_grad():
        for name, each in module.named_parameters():
            each.copy_(torch.from_numpy(np.array(params[name])))
    given = {name: np.float32(each) if each.dtype == float else each for name, each in arrays.items()}
    shown = [{name: each[i] for name, each in given.items()} for i in range(COUNT)]
    np.testing.assert_allclose(found.measured.per_example, squared_norms(module, shown, LABELS), rtol=1e-5)
    assert set(found.measured.paths.values()) == {"contracted"}
    assert set(found.measured.paths) == {name for name, _ in module.named_parameters()}
    assert found.conversion_error is not None
    assert found.conversion_error < 1e-5
