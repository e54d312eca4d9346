"""The chart of a `ks` run with shadow models: what three models say of the query set."""

import numpy as np

from jaxaudit.audits.ks.result import TargetResult, typical
from jaxaudit.errors import visible
from jaxaudit.plots import charts as plot
from jaxaudit.plots.style import chart
from jaxaudit.report.kinds import Arrays
from jaxaudit.report.numbers import number_text
from jaxaudit.report.page import Picture, table_of

SAMPLED = (0.001, 0.01, 0.05, *(share / 10 for share in range(1, 10)), 0.95, 0.99, 0.999, 0.9999, 0.99999, 1.0)


def confidences(place: int, target: TargetResult, arrays: Arrays) -> tuple[Picture, ...]:
    """Confidences of target number `place`; none without rho, or of a result that came without arrays."""
    rho = target.rho
    if not arrays or rho is None:
        return ()
    name, which, replicates = visible(target.name), typical(rho), len(rho.values)
    samples = [arrays["query"][which], arrays[f"target_{place}"], arrays["calibration"][which]]
    gap = plot.widest_gap_at(samples[0], samples[1])
    distance, other = rho.distances[which], number_text(rho.calibration_distances[which])
    places = [(f"{at:g}", at) for at in SAMPLED] + [(f"{gap.confidence:.8g} (widest gap)", gap.confidence)]
    shares = {
        role: plot.share_at_most(sample, np.array([at for _, at in places], sample.dtype))
        for role, sample in zip(plot.ROLES, samples, strict=True)
    }
    columns = {
        "confidence": ("1.0", str),
        **{role: lambda row, values=values: f"{values[row[0]]:.4f}" for role, values in shares.items()},
    }
    picture = Picture(
        f"confidences-{place}",
        f"Confidences of {name}",
        f"The gap is the distance of {name} from a query model; rho divides it by that of the calibration model "
        f"({other}). Replicate {which + 1} of {replicates}, whose rho is nearest to the median. The axis spreads out "
        "confidences close to 1.",
        chart(lambda axes: plot.draw_confidences(axes, samples, gap, distance)),
        table_of(f"Share of query records with at most this confidence, {name}", enumerate(places), columns),
    )
    return (picture,)
