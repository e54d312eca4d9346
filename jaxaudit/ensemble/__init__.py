"""Training many models at once."""

from jaxaudit.ensemble.checkpoint import kept_models, kept_models_per_batch
from jaxaudit.ensemble.distribute import MixedDevicesWarning
from jaxaudit.ensemble.execution import DEFAULT_EXECUTION, Execution, Executor, Progress
from jaxaudit.ensemble.fit import fit_many, measure_models_per_batch
from jaxaudit.ensemble.local_workers import LocalWorkers
from jaxaudit.ensemble.predict import log_probs_many
from jaxaudit.ensemble.ray_workers import RayWorkers
from jaxaudit.ensemble.speed import Speed, measure_speed
from jaxaudit.ensemble.training_state import KeptState, kept_states

__all__ = [
    "DEFAULT_EXECUTION",
    "Execution",
    "Executor",
    "KeptState",
    "LocalWorkers",
    "MixedDevicesWarning",
    "Progress",
    "RayWorkers",
    "Speed",
    "fit_many",
    "kept_models",
    "kept_models_per_batch",
    "kept_states",
    "log_probs_many",
    "measure_models_per_batch",
    "measure_speed",
]
