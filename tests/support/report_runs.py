"""Small runs to make reports of, without training anything."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxaudit.audits.attack.result import AttackAudit, AttackResult
from jaxaudit.audits.ks.result import KSAudit, TargetResult, Truth
from jaxaudit.audits.pdtp.audit import PDTPAudit, Reduction
from jaxaudit.metrics.attack import attack_metrics, correlation
from jaxaudit.metrics.checks import Check
from jaxaudit.metrics.ks import Rho
from jaxaudit.metrics.pdtp import SeedFloor
from jaxaudit.plots.ks import widest_gap
from jaxaudit.report.attack.record import attack_json
from jaxaudit.report.ks.record import ks_json
from jaxaudit.report.pdtp.record import pdtp_json
from jaxaudit.report.run import Run
from jaxaudit.runs.directory import arrays, write

HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> $x^$ \u202egpj.exe \x1b[31m\x00 {{ 7*7 }} &amp; ש日本"
)
"""All a name can try at once: tags, quotes, attributes, mathematics, right-to-left marks, control characters."""
ARRAYS = {"ks": "confidences.npz", "attack": "outputs.npz"}


def provenance(kind: str, name: str, data: dict[str, Any]) -> dict[str, Any]:
    """What every result says of its run."""
    return {
        "jaxaudit": "0.1.0",
        "command": ["jaxaudit", kind, "--data", name, "--seed", "7"],
        "seed": 7,
        "options": {"data": name, "level": 0.95, "learner": "nn", "width": None, "gray": True},
        "versions": {"jax": "0.10.2", "numpy": "2.4.6"},
        "python": "3.11.7",
        "device": "cpu: cpu",
        "devices": 1,
        "cores": 2,
        "environment": {},
        "data": data,
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 12.5,
    }


def ks_audit(name: str = "outputs.csv") -> KSAudit:
    """A target that used the query set and one that did not, against two replicates."""
    rng = np.random.default_rng(0)
    query, calibration = (rng.beta(a, 1, (2, 400)).astype(np.float32) for a in (30, 2))

    def target(called: str, a: float, verdict: Any, truth: Truth | None) -> TargetResult:
        confidences = rng.beta(a, 1, (1, 400)).astype(np.float32)
        above = np.array([widest_gap(row, confidences[0]).distance for row in query])
        below = np.array([widest_gap(*rows).distance for rows in zip(query, calibration, strict=True)])
        median = float(np.median(above / below))
        rho = Rho(above / below, median, median - 0.05, median + 0.05, above, below)
        checks = (
            Check("noise floor", True, 0.1, 0.5, True, "query models differ by little"),
            Check("class coverage", verdict == "forgotten", 3.0, 10.0, False, f"the rarest class is {called}"),
        )
        control = rho._replace(median=0.4, low=0.3, high=0.5)
        return TargetResult(called, truth, rho, verdict, "so it is", "forgotten", checks, (control,), confidences)

    targets = (target(name, 25, "not forgotten", None), target("other", 1.5, "forgotten", Truth(0.0, 10, "forgotten")))
    return KSAudit(targets, np.array([0.05]), query, calibration, query[:1], np.zeros(400, np.int32), 4)


def ks_run(name: str = "outputs.csv") -> Run:
    """A run of `ks`."""
    audit = ks_audit(name)
    one = {"name": name, "records": 400, "shape": [8], "classes": 3, "content_hash": "blake2b:00ff"}
    said = provenance("ks", name, {"query": one, "calibration": one, "target_data": []})
    said |= {"targets": [{"name": name, "kind": "logits", "content_hash": "blake2b:11"}], "model_hash": None}
    confidences = {"query": audit.query_confidences, "calibration": audit.calibration_confidences}
    confidences |= {f"target_{place}": target.confidences[0] for place, target in enumerate(audit.targets)}
    return Run("a run", "ks", ks_json(audit, said), confidences)


def pdtp_audit() -> PDTPAudit:
    """Forty records, two of them above 1, one of those infinitely."""
    rng = np.random.default_rng(1)
    values = np.round(rng.gamma(0.3, 0.2, 40), 4)
    values[[3, 7]] = 1.4, np.inf
    floor = SeedFloor(rng.uniform(0, 0.1, 40), rng.uniform(0.1, 0.3, 40))
    known: dict[str, Any] = {
        "records": np.arange(40),
        "values": values,
        "exact": values,
        "classes": np.arange(40) % 2,
        "directions": np.ones(40, int),
        "floor": floor,
        "duplicates": np.ones(40, int),
        "only_member": np.zeros(40, bool),
        "measurements": values[None],
        "train_accuracy": 0.9,
        "examples": 40,
        "bins": 100,
        "seeded": True,
    }
    return PDTPAudit(**known, dtp_bound=None)


def pdtp_run(name: str = "people.csv") -> Run:
    """A run of `pdtp --reduce 2`."""
    data = {"name": name, "records": 40, "columns": [name], "classes": [name, "no"], "content_hash": "blake2b:aa"}
    said = provenance("pdtp", name, data)
    result = pdtp_json(
        pdtp_audit(), Reduction(np.array([7, 3]), np.array([np.inf, 1.4, 0.6])), (name, "no"), said, 5.29
    )
    return Run("b run", "pdtp", result, {})


def attack_audit() -> AttackAudit:
    """An attack that works and one that guesses, on thirty targets eight times each."""
    rng = np.random.default_rng(2)
    truth = rng.permuted(np.repeat([[True], [False]], 4, axis=0).repeat(30, axis=1), axis=0)
    pdtp = rng.gamma(1, 0.3, (2, 30))
    results = []
    for name, strength in (("distance", 1.5), ("frequency", 0.0)):
        scores = np.round(strength * np.where(truth, 1.0, -1.0) + rng.normal(size=truth.shape), 1)
        place = np.broadcast_to(np.arange(30), truth.shape)
        found = attack_metrics(jax.random.key(1), scores.ravel(), truth.ravel(), place.ravel(), bootstrap=50)
        per_target = ((scores > 0) == truth).mean(axis=0)
        results.append(AttackResult(name, found, per_target, correlation(per_target, pdtp.mean(axis=0)), scores))
    return AttackAudit(np.arange(30), truth, tuple(results), pdtp, 0.99, 0.8, 100, 100, 5, 4)


def attack_run(name: str = "people.csv") -> Run:
    """A run of `attack`."""
    audit = attack_audit()
    data = {"name": name, "records": 100, "columns": [name], "classes": [name, "no"], "content_hash": "blake2b:aa"}
    scores = {f"scores_{attack.name}": attack.scores for attack in audit.attacks}
    result = attack_json(audit, np.arange(30), provenance("attack", name, data))
    return Run("c run", "attack", result, {"truth": audit.truth, **scores})


def efficacy_run(name: str = "people.csv") -> Run:
    """A run of `efficacy` with a reference, which fits the records perfectly."""

    def weights(called: str, role: str, information: float) -> dict[str, Any]:
        efficacy: Any = 1 / information if information else "infinity"
        whole = {"efficacy": efficacy, "information": information, "bound": efficacy}
        return {
            "name": called,
            "role": role,
            **whole,
            "accuracy": 0.9,
            "mean_log_probability": -0.1,
            "layers": [{"name": f"{called}/kernel", **whole}],
        }

    result = {
        "schema": "jaxaudit.efficacy/1",
        "records_measured": 3,
        "outputs": 2,
        "models": [weights(name, "judged", 0.25), weights("retrained", "reference", 0.0)],
        "paths": {"layers_0/kernel": "contracted"},
        "records": [{"index": place, "class": name, "information": {name: 0.1 * place}} for place in range(3)],
        "caveats": ["one model a reference"],
        "provenance": provenance("efficacy", name, {"name": name, "records": 3, "content_hash": "blake2b:aa"}),
    }
    return Run("d run", "efficacy", result, {})


def unlearn_run(name: str = "people.csv") -> Run:
    """A run of `unlearn`: one method too good, one too bad, and models that were never attacked."""
    rng = np.random.default_rng(3)

    def spread(values: np.ndarray) -> dict[str, Any]:
        shown = [float(value) if np.isfinite(value) else "infinity" for value in values]
        ordered = sorted(shown, key=lambda value: float(str(value)))
        return {"median": ordered[4], "low": ordered[0], "high": ordered[-1], "mean": shown[0], "values": shown}

    def method(called: str, scale: float, judged: bool = True) -> dict[str, Any]:
        efficacy = scale * rng.lognormal(0, 0.5, 8)
        scores = {"efficacy": spread(efficacy), "information": spread(1 / efficacy), "bound": spread(3 * efficacy)}
        for score in ("remaining_accuracy", "forgotten_accuracy", "test_accuracy", "attack"):
            scores[score] = spread(rng.uniform(0.5, 1, 8))
        if called == "untrained":
            scores["attack"] = None  # pyright: ignore[reportArgumentType]
        place = {
            "verdict": "below" if scale < 1 else "not told apart",
            "p_value": 0.001,
            "retrained_low": 0.5,
            "retrained_high": 2.0,
            "share_below": 1.0,
            "share_above": 0.0,
        }
        said = ("differs" if scale < 1 else "not told apart") if judged else None
        return {"name": called, "scores": scores, "places": {"efficacy": place} if judged else {}, "conclusion": said}

    methods = [method("untrained", 0.01, False), method("original", 1e6, False), method("retraining", 1.0, False)]
    result = {
        "schema": "jaxaudit.unlearn/1",
        "forgotten": name,
        "protocol": {
            "training_records": 100,
            "forgotten_records": 10,
            "test_records": 50,
            "attack_nonmembers": 20,
            "seeds": 8,
            "level": 0.95,
            "p_value_threshold": 0.01,
            "enough_seeds": True,
            "members_share": 0.6,
        },
        "methods": [*methods, method(name, 1e-4), method("fisher", np.inf)],
        "caveats": ["not told apart from retraining is no proof of forgetting: another score may tell"],
        "provenance": provenance("unlearn", name, {"name": name, "records": 3, "content_hash": "blake2b:aa"}),
    }
    return Run("e run", "unlearn", result, {})


RUNS = {"ks": ks_run, "pdtp": pdtp_run, "attack": attack_run, "efficacy": efficacy_run, "unlearn": unlearn_run}


def save(run: Run, directory: Path) -> Path:
    """The run as `--out` leaves it."""
    files = {ARRAYS[run.kind]: arrays(run.arrays)} if run.arrays else {}
    write(directory, run.result, files)
    return directory
