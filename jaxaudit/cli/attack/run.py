"""What `jaxaudit attack` does between its options and its result."""

import difflib
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int
from rich.console import RenderableType

from jaxaudit.audits.attack.audit import audit_attack
from jaxaudit.audits.attack.plan import Attacks, check_options, draw, models_to_train, settle_attack_width
from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.cli.classifier import demand_memory, describe, make_classifier, read_table
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.repeat import Options, plain
from jaxaudit.cli.show import as_text
from jaxaudit.cli.table_run import settled, table_provenance
from jaxaudit.cli.widths import recall_width, remember_width
from jaxaudit.cli.work import Begin
from jaxaudit.data import Table, candidate_indices
from jaxaudit.errors import InputError
from jaxaudit.report.attack.record import attack_json
from jaxaudit.runs.directory import arrays, write
from jaxaudit.runs.identity import run_identity

CANDIDATES = 2000
USUAL = {"iterations": 100, "targets": 100}
DEMONSTRATION = {"iterations": 10, "targets": 20}
"""Where no data are named."""


class Answer(NamedTuple):
    """What the command found.

    Attributes:
        audit: of all attacks.
        records: the attacked records, by their place in the table that was given.
        provenance: what repeats the run.
        level: of the intervals.
    """

    audit: AttackAudit
    records: Int[np.ndarray, " targets"]
    provenance: dict[str, Any]
    level: float

    def json(self) -> dict[str, Any]:
        """As one JSON object."""
        return attack_json(self.audit, self.records, self.provenance)


def run(options: Options, begin: Begin) -> Answer:
    """The answer of `jaxaudit attack` with these options; see `lasting_work` for `begin`."""
    started = time.time()
    options = dict(options)
    sizes = DEMONSTRATION if options["data"] is None and options["csv"] is None else USUAL
    options["iterations"] = options["iterations"] or sizes["iterations"]
    # What can be refused without reading data is refused first.
    attacks = parse_attacks(options["attacks"])
    numbers = {name: options[name] for name in ("shadows", "untargeted_shadows", "measured", "bins")}
    check_options(attacks, options["iterations"], **numbers, level=options["level"])
    whole = read_table(options)
    describe(whole, columns=options["csv"] is not None)
    options["candidates"] = _candidates(options["candidates"], whole)
    options["targets"] = options["targets"] or min(sizes["targets"], options["candidates"])
    chosen = candidate_indices(np.random.default_rng(options["seed"]), len(whole), options["candidates"])
    table = whole.take(chosen)
    examples, learner = make_classifier(options, table)[:2]
    splits = 2 * options["iterations"] * len(table)
    demand_memory(splits, f"--iterations {options['iterations']}", "give fewer of them, or fewer --candidates")
    key = jax.random.key(options["seed"])
    drawn = draw(key, examples, options["iterations"], options["targets"])
    work = {**plain(options), "command": "attack", "shape": examples.inputs.shape}
    if options["width"] is None:
        options["width"] = recall_width(work)
        if options["width"] is None:
            options["width"] = settle_attack_width(key, examples, learner, options["targets"])
            remember_width(work, options["width"])
    how: dict[str, Any] = {
        "attacks": attacks,
        **{name: options[name] for name in ("shadows", "untargeted_shadows", "fresh_shadows", "width")},
        "measured": min(options["measured"], options["iterations"]),
    }
    models = models_to_train(drawn, learner, **how)
    line = (
        f"attacking {options['targets']:,} of {len(table):,} candidates {2 * options['iterations']:,} times through "
        f"{options['learner']}: {models:,} models on {jax.default_backend()}"
    )
    checkpoints = begin(run_identity("attack", settled(options), {"table": table.content_hash}, {}), models, line)
    with progress_on_stderr("attacking") as progress:
        audit = audit_attack(
            key,
            examples,
            learner,
            iterations=options["iterations"],
            targets=options["targets"],
            bins=options["bins"],
            level=options["level"],
            progress=progress,
            checkpoints=checkpoints,
            **how,
        )
    provenance = table_provenance("attack", options, whole, table, "candidate", started)
    return Answer(audit, whole.in_file(chosen[audit.targets]), provenance, options["level"])


def save(directory: Path, answer: Answer, table: RenderableType) -> None:
    """Writes the run directory: the JSON result, the table, and every attack's scores."""
    write(directory, answer.json(), {"outputs.npz": arrays(arrays_of(answer))}, as_text(table))
    say(f"written: {directory}/result.json and {directory}/outputs.npz")


def arrays_of(answer: Answer) -> dict[str, np.ndarray]:
    """What stands beside the result: who was attacked, who was in, and every attack's scores."""
    audit = answer.audit
    scores = {f"scores_{attack.name}": attack.scores for attack in audit.attacks}
    return {"records": answer.records, "truth": audit.truth, "pdtp": audit.measurements, **scores}


def parse_attacks(text: str) -> Attacks:
    """Which attacks `--attacks` names.

    Raises:
        InputError: one is unknown (with near matches).

    >>> parse_attacks("distance, frequency")
    Attacks(untargeted=False, distance=True, frequency=True)
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in Attacks._fields:
            near = difflib.get_close_matches(name.lower(), Attacks._fields, n=1)
            advice = f"did you mean {near[0]}?" if near else f"give some of {', '.join(Attacks._fields)}."
            raise InputError(f"--attacks: there is no attack called {name!r}; {advice}")
    return Attacks(*(name in names for name in Attacks._fields))


def _candidates(asked: int | None, table: Table) -> int:
    """How many candidates: as asked, else the paper's number, or as many pairs as there are."""
    if asked is None:
        return min(CANDIDATES, len(table) // 2 * 2)
    if asked > len(table):
        raise InputError(
            f"--candidates {asked} asks for more than the {len(table):,} records of {table.name}; leave it out to take "
            "all."
        )
    if asked % 2:
        raise InputError(f"--candidates {asked} cannot be split into equal halves; give an even number.")
    return asked
