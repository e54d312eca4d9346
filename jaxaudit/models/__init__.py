"""Networks of the papers and other common networks, and the conversion of Flax and PyTorch modules.

A module, a folder or a file that cannot be used is an `InputError`; `Raises` says only what is particular.
`__all__` has what users need; the further names are for other rooms.
"""

from jaxaudit.models.bridge import ModuleFactory, PureModule, pure_module
from jaxaudit.models.causal import Adapters, write_adapter
from jaxaudit.models.causal import token_scores as token_scores
from jaxaudit.models.language_model import LanguageModel as LanguageModel
from jaxaudit.models.language_model import folder_hash as folder_hash
from jaxaudit.models.language_model import read_lora as read_lora
from jaxaudit.models.module import HiddenStates, hidden_states
from jaxaudit.models.networks import GPT, MLP, LiuCNN, ResNet, ViT, WideResNet
from jaxaudit.models.pretrained import TransformersClassifier as TransformersClassifier
from jaxaudit.models.restore import name_weights as name_weights
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
