"""`jaxaudit scores`: its commands. Imports nothing heavy, so that `--help` is instant."""

from jaxaudit.cli.scores.open_unlearning import OPEN_UNLEARNING

SCORES = (OPEN_UNLEARNING,)
