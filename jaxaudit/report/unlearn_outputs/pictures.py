"""The charts of a run of `unlearn --outputs`."""

from collections.abc import Sequence

from jaxaudit.audits.unlearn.given_models import AGAIN
from jaxaudit.audits.unlearn.outputs_result import UnlearnOutputsResult
from jaxaudit.report.estimates import estimates_pictures
from jaxaudit.report.page import Picture
from jaxaudit.report.record import Run


def pictures(run: Run[UnlearnOutputsResult]) -> tuple[Picture, ...]:
    """All charts of a run; none if no models were compared."""
    quality = [(method.name, method.challenge.quality) for method in run.result.methods if method.challenge is not None]
    lira = [(method.name, method.u_lira) for method in run.result.methods if method.u_lira is not None]
    return estimates_pictures(quality, lira, AGAIN, run.result.protocol.level)


def compared(runs: Sequence[Run[UnlearnOutputsResult]]) -> tuple[Picture, ...]:
    """None: numbers of runs with other retrained models are not comparable."""
    return ()
