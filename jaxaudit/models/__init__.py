"""Networks of the papers, and the conversion of any Flax module to pure functions."""

from jaxaudit.models.bridge import RUN_ONCE, ModuleFactory, PureModule, pure_module
from jaxaudit.models.liu_cnn import LiuCNN
from jaxaudit.models.medical_cnn import MedicalCNN, RandomCrop
from jaxaudit.models.mlp import MLP

__all__ = ["MLP", "RUN_ONCE", "LiuCNN", "MedicalCNN", "ModuleFactory", "PureModule", "RandomCrop", "pure_module"]
