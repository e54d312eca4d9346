"""Training many models at once.

The host plans (chunks, models a batch, cost, devices, workers); the device trains.
"""

from jaxaudit.ensemble.batches import form_of as form_of
from jaxaudit.ensemble.chunk import kept_models as kept_models
from jaxaudit.ensemble.chunk import kept_models_per_batch as kept_models_per_batch
from jaxaudit.ensemble.execution import DEFAULT_EXECUTION as DEFAULT_EXECUTION
from jaxaudit.ensemble.execution import Execution as Execution
from jaxaudit.ensemble.execution import Executor as Executor
from jaxaudit.ensemble.models_per_batch import StepCost as StepCost
from jaxaudit.ensemble.models_per_batch import count_step as count_step
from jaxaudit.ensemble.models_per_batch import usual_models_per_batch as usual_models_per_batch
from jaxaudit.ensemble.train import fit_many as fit_many
from jaxaudit.ensemble.train import log_probs_many as log_probs_many
from jaxaudit.ensemble.train import suitable_models_per_batch as suitable_models_per_batch
from jaxaudit.ensemble.workers import LocalWorkers as LocalWorkers
from jaxaudit.ensemble.workers import RayWorkers as RayWorkers
from jaxaudit.learners.learner import Progress as Progress
