"""Training many models at once."""

from jaxaudit.ensemble.checkpoint import kept_models, kept_width
from jaxaudit.ensemble.fit import Progress, fit_many, measure_width
from jaxaudit.ensemble.predict import log_probs_many

__all__ = ["Progress", "fit_many", "kept_models", "kept_width", "log_probs_many", "measure_width"]
