"""What PyTorch itself says of a module, for the tests of those that run here."""

from importlib import import_module
from typing import Any

import numpy as np


def state_of(module: Any) -> dict[str, np.ndarray]:
    """All that it saves, by name."""
    return {name: each.detach().numpy().copy() for name, each in module.state_dict().items()}


def squared_norms(module: Any, records: Any, labels: np.ndarray) -> np.ndarray:
    """Of each record's gradient, by a loop of backward passes; records are arrays, or several of each by name."""
    torch: Any = import_module("torch")
    found = []
    for record, label in zip(records, labels, strict=True):
        module.zero_grad()
        if isinstance(record, dict):
            outputs = module(**{name: torch.as_tensor(each)[None] for name, each in record.items()})
        else:
            outputs = module(torch.from_numpy(record)[None])
        logits = getattr(outputs, "logits", outputs)
        torch.nn.functional.cross_entropy(logits, torch.tensor([int(label)])).backward()
        gradients = [each.grad for each in module.parameters() if each.grad is not None]
        found.append(sum(float(each.double().square().sum()) for each in gradients))
    return np.array(found)
