"""Networks of the papers, networks in common use, and the conversion of any Flax module to pure functions."""

from jaxaudit.models.bridge import RUN_ONCE, ModuleFactory, PureModule, pure_module
from jaxaudit.models.liu_cnn import LiuCNN
from jaxaudit.models.medical_cnn import MedicalCNN, RandomCrop
from jaxaudit.models.mlp import MLP
from jaxaudit.models.residual import ResNet, WideResNet
from jaxaudit.models.vit import ViT

__all__ = [
    "MLP",
    "RUN_ONCE",
    "LiuCNN",
    "MedicalCNN",
    "ModuleFactory",
    "PureModule",
    "RandomCrop",
    "ResNet",
    "ViT",
    "WideResNet",
    "pure_module",
]
