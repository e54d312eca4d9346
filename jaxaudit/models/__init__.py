"""Networks of the papers and other common networks, and the conversion of Flax and PyTorch modules.

A module, a folder or a file that cannot be used is an `InputError`; `Raises` says only what is particular.
"""

from jaxaudit.models.attention import GPT, ViT
from jaxaudit.models.bridge import ModuleFactory, PureModule, pure_module
from jaxaudit.models.causal import Adapters, write_adapter
from jaxaudit.models.module import HiddenStates, hidden_states
from jaxaudit.models.networks import MLP, LiuCNN, ResNet, WideResNet
from jaxaudit.randomness import RUN_ONCE

__all__ = [
    "GPT",
    "MLP",
    "RUN_ONCE",
    "Adapters",
    "HiddenStates",
    "LiuCNN",
    "ModuleFactory",
    "PureModule",
    "ResNet",
    "ViT",
    "WideResNet",
    "hidden_states",
    "pure_module",
    "write_adapter",
]
