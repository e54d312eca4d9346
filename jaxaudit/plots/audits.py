"""The charts of a result in one figure: what `result.plot()` returns."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from jaxaudit.plots import attack as attack_plot
from jaxaudit.plots import ks as ks_plot
from jaxaudit.plots import pdtp as pdtp_plot
from jaxaudit.plots import unlearn as unlearn_plot
from jaxaudit.plots.style import panels

if TYPE_CHECKING:
    from jaxaudit.audits.attack.result import AttackAudit
    from jaxaudit.audits.efficacy.audit import EfficacyAudit
    from jaxaudit.audits.ks.result import KSAudit
    from jaxaudit.audits.pdtp.audit import PDTPAudit
    from jaxaudit.audits.unlearn.result import UnlearnAudit

MOST_RISKY = 10


def plot_ks(audit: "KSAudit", target: int = 0) -> Figure:
    """Confidences of one target, on both axes, and rho of all targets and controls against 1."""
    figure, (plain, stretched, ratios) = panels(3)
    judged = audit.targets[target]
    values = judged.rho.values
    typical = 0 if np.isnan(values).all() else int(np.nanargmin(np.abs(values - np.nanmedian(values))))
    samples = [audit.query_confidences[typical], judged.confidences[0], audit.calibration_confidences[typical]]
    gap = ks_plot.widest_gap(samples[0], samples[1])
    for axes in (plain, stretched):
        distance = float(judged.rho.distances[typical])
        ks_plot.draw_confidences(axes, samples, gap, distance, stretched=axes is stretched)
    named = [(each.name, each.rho) for each in audit.targets]
    named += [(f"control {place} (saw both)", control) for place, control in enumerate(judged.controls, 1)]
    rows = [ks_plot.Row(name, rho.values, rho.median, rho.low, rho.high) for name, rho in named]
    ks_plot.draw_rho(ratios, rows)
    return figure


def plot_pdtp(audit: "PDTPAudit") -> Figure:
    """How many records have which PDTP, and the riskiest, against their seed floor."""
    figure, (distribution, riskiest) = panels(2)
    pdtp_plot.draw_distribution(distribution, audit.values, audit.floor.mean if audit.seeded else None)
    order = np.argsort(-audit.values, kind="stable")[:MOST_RISKY]
    risks = [
        pdtp_plot.Risk(
            f"record {audit.records[place]}",
            float(audit.values[place]),
            float(audit.floor.mean[place]),
            float(audit.floor.largest[place]),
        )
        for place in order
    ]
    pdtp_plot.draw_risks(riskiest, risks, seeded=audit.seeded)
    return figure


def plot_attack(audit: "AttackAudit") -> Figure:
    """Who is found out against PDTP, and operating characteristics on linear and logarithmic axes."""
    figure, (targets, linear, logarithmic) = panels(3)
    attack_plot.draw_accuracies(targets, audit.pdtp, [(each.name, each.per_target) for each in audit.attacks])
    curves = [(each.name, attack_plot.operating_curve(each.scores, audit.truth)) for each in audit.attacks]
    for axes in (linear, logarithmic):
        attack_plot.draw_curves(axes, curves, logarithmic=axes is logarithmic)
    return figure


def plot_efficacy(audit: "EfficacyAudit") -> Figure:
    """Efficacy of the weights in question and of their references, and against its bound."""
    figure, (efficacies, bounds) = panels(2)
    drawn = []
    for each in audit.models:
        efficacy, bound = np.array([each.measured.whole.efficacy]), np.array([each.measured.whole.bound])
        drawn.append(unlearn_plot.Method(each.name, efficacy, bound, None))
    unlearn_plot.draw_efficacies(efficacies, drawn, None)
    unlearn_plot.draw_bounds(bounds, drawn)
    return figure


def plot_unlearn(audit: "UnlearnAudit", forget_set: int = 0) -> Figure:
    """Efficacy beside the band of retrained models, against its bound, and the attack where one was made."""
    drawn = []
    for method in audit.methods:
        efficacy, bound, attack = (getattr(method.scores, name)[forget_set] for name in ("efficacy", "bound", "attack"))
        drawn.append(unlearn_plot.Method(method.name, efficacy, bound, None if np.isnan(attack).all() else attack))
    retrained = audit["retraining"].scores.efficacy[forget_set]
    attacked = any(method.attack is not None for method in drawn)
    figure, (efficacies, bounds, *attacks) = panels(3 if attacked else 2)
    unlearn_plot.draw_efficacies(efficacies, drawn, (float(retrained.min()), float(retrained.max())))
    unlearn_plot.draw_bounds(bounds, drawn)
    if attacked:
        guess = audit.members_share
        unlearn_plot.draw_attacks(attacks[0], drawn, None if np.isnan(guess) else guess)
    return figure
