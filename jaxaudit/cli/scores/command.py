"""`jaxaudit scores`: its commands. Imports nothing heavy, so that `--help` is instant."""

from jaxaudit.cli.scores.lm import LM
from jaxaudit.cli.scores.open_unlearning import OPEN_UNLEARNING
from jaxaudit.cli.scores.regression import REGRESSION

SCORES = (OPEN_UNLEARNING, LM, REGRESSION)
