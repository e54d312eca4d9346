"""The three words of `ks` in Python: `deal` records, ask a model for its outputs on each part, and judge it: `ks`."""

from collections.abc import ItemsView, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxaudit.audits.ks.judge import judge
from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.target import FileTarget
from jaxaudit.audits.ks.tests_of_use import KSTest
from jaxaudit.audits.ks.train import train_shadows
from jaxaudit.data import align_dealt, load
from jaxaudit.data.deals import open_folder
from jaxaudit.data.examples import Examples, Role, Sets
from jaxaudit.data.groups import groups_in_file, number_sets
from jaxaudit.data.labels import number_groups
from jaxaudit.data.outputs.outputs import Outputs, outputs_of
from jaxaudit.data.paths import whole_file
from jaxaudit.errors import InputError
from jaxaudit.metrics.arrays import units_of_records
from jaxaudit.metrics.deal import deal_holdout, deal_members, merge_groups
from jaxaudit.randomness import stream
from jaxaudit.shadow_models import ShadowModels

TARGET = "target"
"""The name of a model that is given without one."""


@dataclass(frozen=True, eq=False)
class Deal:
    """Records in the sets of a test, by role: the query set, and any holdout, known members and calibration set.

    Their records have `groups` if groups, or copies, were dealt whole.
    """

    sets: Sets[Examples]

    @property
    def query(self) -> Examples:
        """The records in question."""
        return self.sets[Role.QUERY]

    @property
    def holdout(self) -> Examples:
        """Records of the same provider that nobody may train on."""
        return self._part(Role.HOLDOUT)

    @property
    def members(self) -> Examples:
        """Records that stay in training."""
        return self._part(Role.MEMBERS)

    def _part(self, role: Role) -> Examples:
        if role not in self.sets:
            raise InputError(f"this deal has no {role}: deal again with a share of them (`{role}`).")
        return self.sets[role]

    def items(self) -> ItemsView[Role, Examples]:
        """The name of each set (`query`, ...) and its records."""
        return self.sets.items()

    def save(self, folder: Path | str) -> Path:
        """Writes query.npz and so on into a new folder, for `open_deal` and for `jaxaudit ks --deal`."""
        folder = Path(folder).expanduser()
        if any(examples.gaps for _, examples in self.items()):
            raise InputError(
                "the sets have empty cells, which no .npz has: `jaxaudit deal` deals such a table as it is."
            )
        try:
            folder.mkdir()
            for role, examples in self.items():
                arrays = {"x": examples.inputs, "y": examples.labels, "class_names": np.array(examples.class_names)}
                arrays |= {} if examples.groups is None else {"group": examples.groups}
                with whole_file(folder / f"{role}.npz") as file:
                    np.savez(file, allow_pickle=False, **arrays)
        except OSError as error:
            raise InputError(f"`folder` {folder} cannot be written ({error.strerror}); name a new one.") from error
        return folder


def deal(
    records: Examples,
    *,
    holdout: float,
    members: float | None = None,
    seed: int,
) -> Deal:
    """Deals records at random into a query set, a holdout and known members, before anything is shared.

    Copies of a record, and records of a group (`Examples.groups`), are dealt together. See also `jaxaudit deal`.

    Args:
        holdout, members: the shares of the records, or groups, that are held out, and that stay in training.
        seed: whoever knows it, and the records, knows who is in which set.

    >>> import jaxaudit as ja
    >>> parts = ja.deal(ja.load("digits"), holdout=0.3, members=0.4, seed=1)
    >>> {str(role): len(examples) for role, examples in parts.items()}
    {'query': 539, 'holdout': 539, 'members': 719}
    """
    if not isinstance(records, Examples):
        raise InputError(
            f"`records` is a {type(records).__name__}, and Examples are needed: `ja.load(FILE, label=COLUMN)`, or "
            "`ja.Examples(inputs, labels, class_names, NAME)` with an array of numbers and the number of each class."
        )
    key, hashes = stream(jax.random.key(seed), "deal"), records.record_hashes.view("S16")
    copied = len(np.unique(hashes)) < len(hashes)
    units = None
    if records.groups is not None or copied:
        units = merge_groups(units_of_records(records.groups, len(records)), hashes)
    held = deal_holdout(key, len(records), holdout, units)
    stay = np.zeros_like(held) if members is None else deal_members(key, held, members, units)
    rows = Sets(query=~(held | stay), holdout=held, members=None if members is None else stay)
    if units is not None:
        # Numbered set after set: no number tells where among the records a group was.
        order = np.concatenate([np.flatnonzero(part) for part in rows.values()])
        units[order] = number_groups(units[order])
    of_deal = replace(records, groups=units)
    return Deal(rows.map(lambda role, part: of_deal.take(part, f"{records.name} ({role})")))


def open_deal(folder: Path | str, *, label: str | None = None, drop: Sequence[str] = ()) -> Deal:
    """The sets of a folder, as `Deal.save` or `jaxaudit deal` writes it, or any with query.*, holdout.* and so on.

    `label` and `drop` are those of `load`, for own tables; a folder of `jaxaudit deal` says its label. A blind deal is
    an `InputError`: only `jaxaudit ks` reads answers to its challenge.
    """
    opened = open_folder(Path(folder).expanduser())
    if opened.key is not None:
        raise InputError(f"{folder}: the deal is blind; `jaxaudit ks` reads answers to its challenge.")
    sets = opened.names.map(lambda _, name: load(name, label=label or opened.label, drop=drop, gaps=True))
    query = sets[Role.QUERY]
    sets = sets.map(lambda role, examples: examples if role == Role.QUERY else align_dealt(query, examples))
    dealt_names = opened.names.only(Role.QUERY, Role.HOLDOUT, Role.MEMBERS)
    values = dealt_names.map(lambda _, name: groups_in_file(name))
    if len(dealt_names) == 1 or len(values) < len(dealt_names):
        return Deal(sets)
    groups = number_sets(values)
    return Deal(sets.map(lambda role, examples: replace(examples, groups=groups.get(role))))


def ks(
    deal: Deal,
    outputs: Mapping[str, Any],
    *,
    before: Mapping[str, Any] | None = None,
    shadows: ShadowModels | None = None,
    tests: Sequence[KSTest] | None = None,
    allow_unrelated: bool = False,
    seed: int = 7,
) -> KSAudit:
    """Has a model forgotten the query set of a deal, or never used it? As `jaxaudit ks --deal`.

    Args:
        outputs: by the name of each set, the model's outputs on its records, a row a record and a column a class: an
            array with the classes in the order of `deal.query.class_names`, a table of pandas or Polars with columns
            named after them, or `outputs_of`. Or such a mapping for each of several models, by its name. A set that a
            model has no outputs on is not used.
        before: the outputs of the model before the deletion, on query set and holdout.
        shadows: shadow models with these sets (`train_shadows`, `open_bank`); without, a holdout is needed.
        tests: the tests, the deciding one first; by default the strongest that the outputs allow.
        allow_unrelated: accept outputs that classify the query set no better than guessing.

    Returns:
        The result. As text it is the finding on each model, in a sentence.

    >>> import jaxaudit as ja
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> parts = ja.deal(ja.ordinal(ja.load_table("wine")), holdout=0.3, members=0.4, seed=1)
    >>> inputs = np.concatenate([parts.query.inputs, parts.members.inputs])
    >>> labels = np.concatenate([parts.query.labels, parts.members.labels])
    >>> model = RandomForestClassifier(random_state=1).fit(inputs, labels)
    >>> result = ja.ks(parts, {role: model.predict_proba(part.inputs) for role, part in parts.items()})
    >>> result.targets[0].finding.verdict
    'not forgotten'
    """
    for parameter, value in {"outputs": outputs, "before": before or {}}.items():
        if not isinstance(value, Mapping):
            raise InputError(
                f"`{parameter}` is a {type(value).__name__}, and a mapping is needed: the outputs on each set by its "
                f"name, such as {{'query': model.predict_proba(...), 'holdout': ...}}."
            )
    models = outputs if isinstance(next(iter(outputs.values()), None), Mapping) else {TARGET: outputs}
    every = [_outputs(deal, name, of_model) for name, of_model in models.items()]
    common = {*Role}.intersection(*every)
    read = [of_model.only(*common) for of_model in every]
    earlier = Sets[Outputs]() if before is None else _outputs(deal, "before", before).only(Role.QUERY, Role.HOLDOUT)
    targets = [
        FileTarget(of_model, earlier, allow_unrelated).called(name) for name, of_model in zip(models, read, strict=True)
    ]
    key = jax.random.key(seed)
    if shadows is None:
        used = deal.sets.only(Role.QUERY, *common)
        if Role.HOLDOUT not in used:
            raise InputError("give `outputs` on the holdout, too, or `shadows`: shadow models to compare with.")
        shadows = train_shadows(
            key, deal.query, targets=targets, tests=tests, holdout=deal.holdout, members=used.get(Role.MEMBERS)
        )
    return judge(key, shadows, targets, tests=tests)


def _outputs(deal: Deal, name: str, of_model: Mapping[str, Any]) -> Sets[Outputs]:
    """The outputs of one model, by the role of the set that they are on."""
    further = [str(role) for role in of_model if role not in [*deal.sets]]
    if further or Role.QUERY not in of_model:
        trouble = f"has outputs on {further[0]!r}" if further else "has no outputs on the query set"
        raise InputError(f"`outputs` of {name}: {trouble}; the sets of this deal are {', '.join(deal.sets)}.")

    def of_set(role: Role, examples: Examples) -> Outputs:
        value = of_model[role]
        if isinstance(value, Outputs):
            return value
        return outputs_of(value, examples.class_names, len(examples), name=f"{name}[{role}]", of=role.words)

    return deal.sets.only(*map(Role, of_model)).map(of_set)
