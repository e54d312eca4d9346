"""Training many models at once."""

from jaxaudit.ensemble.checkpoint import kept_models, kept_width
from jaxaudit.ensemble.fit import Progress, fit_many, measure_width
from jaxaudit.ensemble.predict import log_probs_many
from jaxaudit.ensemble.speed import Speed, measure_speed
from jaxaudit.ensemble.training_state import KeptState, kept_states

__all__ = [
    "KeptState",
    "Progress",
    "Speed",
    "fit_many",
    "kept_models",
    "kept_states",
    "kept_width",
    "log_probs_many",
    "measure_speed",
    "measure_width",
]
