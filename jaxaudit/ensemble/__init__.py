"""Training many models at once."""

from jaxaudit.ensemble.fit import Progress, fit_many, measure_width
from jaxaudit.ensemble.predict import log_probs_many

__all__ = ["Progress", "fit_many", "log_probs_many", "measure_width"]
