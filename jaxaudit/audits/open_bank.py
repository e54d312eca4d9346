"""Reads the models of a bank as shadow models, and a target's outputs in the format of a bank."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
from jaxtyping import Int
from scipy import special

from jaxaudit.audits.bank_odds import (
    LARGEST,
    SEEN,
    StoredOutputs,
    as_logits,
    at_resolution,
    coarser,
    detail_of,
    distinct_resolutions,
    model_outputs,
    outputs_of_first_view,
    own_accuracy,
    score_outputs,
)
from jaxaudit.data.bank.bank import Bank, load_bank, read_models, row_blocks
from jaxaudit.data.bank.description import ROLES, SCORED, load_into, refuse_labels
from jaxaudit.data.examples import Examples, concatenate
from jaxaudit.data.labels import number_groups
from jaxaudit.data.outputs.form import OutputsPlace, as_place
from jaxaudit.data.outputs.model_copies import refuse_odd_models
from jaxaudit.data.outputs.outputs import Outputs, logit_step
from jaxaudit.data.pairs import MEMBERS, refuse_held
from jaxaudit.errors import InputError
from jaxaudit.metrics.arrays import units_of_records
from jaxaudit.metrics.deal import dealt_alike
from jaxaudit.metrics.exchangeability import NOT_MEASURED, Alike
from jaxaudit.metrics.scores import rank_scale
from jaxaudit.shadow_models import Kind, Pool, ShadowModels, pool_of_sets

NO_CLASS = ("",)
"""The class names of records without classes."""


def open_bank(
    bank: Bank | str | Path,
    models: Sequence[int] | None = None,
    *,
    records: int | None = None,
    by_view: bool = False,
    members: Examples | None = None,
    sets: Mapping[str, Examples] = MappingProxyType({}),
) -> ShadowModels:
    """Reads a bank of shadow models, trained here or by any script, for `judge` and `attack`.

    Only models that some test of use can use are kept, unless `by_view` is given. The log-odds of a record with several
    views are cut at 20 nats and averaged. Scores of any unit are replaced by log-odds of ranks (`RankScale`).

    Args:
        models: their numbers; by default all finished models.
        records: keep only the first `records` of the bank.
        by_view: keep all models, without their kinds, and their log-odds in each view (`ShadowModels.views`).
        members: records that the targets are known to have used, with the bank's classes, and on which it has no
            outputs; with their groups, if the bank keeps groups whole.
        sets: the bank's own sets by role (`query`, `holdout`, `calibration`), as far as available. With query set and
            holdout, whether known members are exchangeable with these is tested on the inputs, too.

    Raises:
        InputError: as `load_bank` and `Bank.outputs`; two models are one, or one is unlike all others; or a known
            member is a record of a set of the bank.

    >>> import json, tempfile
    >>> import jax
    >>> from jaxaudit import plan_bank
    >>> members = plan_bank(jax.random.key(7), models=20, query=50, holdout=50).membership
    >>> said = {"format": 1, "outputs": "log_odds", "classes": 2, "records": 100, "models": 20}
    >>> said["counts"] = {"query": 50, "holdout": 50}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "bank.json").write_text(json.dumps(said))
    ...     for name, array in {"labels": np.zeros(100, int), "membership": members, "outputs": 3.0 * members}.items():
    ...         np.save(Path(folder, f"{name}.npy"), array)
    ...     shadows = open_bank(folder)
    >>> set(shadows.kinds), shadows.log_odds.shape
    ({<Kind.MIXED: 'mixed'>}, (20, 100))
    """
    bank = bank if isinstance(bank, Bank) else load_bank(bank)
    numbers = bank.finished().tolist() if models is None else models
    (pool, columns), kept_records = pool_of(bank, records), np.flatnonzero(~bank.dropped)
    odds, correct = (np.empty((len(numbers), len(columns)), np.float32) for _ in range(2))
    accuracies = np.empty(len(numbers))
    ranked = bank.description.outputs == "score"
    views = np.empty((len(numbers), bank.description.queries, len(columns))) if by_view or ranked else None
    most = LARGEST[bank.description.outputs]

    def read(index: int, values: StoredOutputs) -> Outputs:
        # What a model that publishes labels gives away is a question for attacks.
        if not by_view:
            refuse_labels(values, bank.description, f"model {numbers[index]}")
        outputs = model_outputs(bank, values, numbers[index])
        odds[index], correct[index] = outputs.log_odds[columns], outputs.correct[columns]
        accuracies[index] = own_accuracy(bank, numbers[index], outputs)
        if views is not None:
            views[index] = outputs.by_view[columns].T.clip(-most, most)
        sample = kept_records[:: max(1, len(kept_records) * values.shape[2] // SEEN)]
        return outputs_of_first_view(bank.description, values[sample], values.dtype.name, f"model {numbers[index]}")

    grids, content_hash = read_models(bank, numbers, read)
    kinds = [] if by_view else kinds_of(bank)
    # Models of other kinds are read only for the hash.
    used = np.array([index for index, number in enumerate(numbers) if by_view or kinds[number] != Kind.OTHER], int)
    kept = np.array(numbers, int)[used]
    refuse_odd_models(odds[used], kept.tolist(), bank.directory.name, bank.membership[kept])
    stored, scale = distinct_resolutions(grids[index] for index in used), None
    if ranked and views is not None and len(used):
        scale, stored = rank_scale(views[used], max(map(logit_step, stored))), ()
        views = scale(views)
        odds = views[:, 0].astype(np.float32)
    elif views is not None and len(stored) > 1:
        details = [detail_of(outputs) for outputs in stored]
        for index, file in enumerate(grids):
            views[index] = at_resolution(views[index], coarser([detail_of(file)], details))
    shadows = ShadowModels(
        pool=pool,
        kinds=tuple(kinds[number] for number in numbers if kinds),
        membership=np.take(bank.membership[numbers], columns, axis=1),
        log_odds=odds,
        correct=correct,
        confidences=special.expit(odds.astype(np.float64)).astype(np.float32),
        own_accuracy=accuracies,
        resolutions=stored,
        content_hash=content_hash,
        bank=bank,
        numbers=np.array(numbers, int),
        views=views if by_view else None,
        scale=scale,
    )
    shadows = shadows if by_view else shadows.take(used)
    return shadows if members is None else _with_members(bank, shadows, members, sets)


def _with_members(bank: Bank, models: ShadowModels, members: Examples, sets: Mapping[str, Examples]) -> ShadowModels:
    """The models with known members behind the bank's records, which none of the models and no set of the bank has."""
    for role in ROLES:
        if members.content_hash == getattr(bank.description.hashes, role):
            raise InputError(
                f"the known members {members.name} are the {role} records of the bank: give records that the target "
                "did use, and that are in no set of the bank (`members`)."
            )
    for role, records in sets.items():
        refuse_held(records, members, f"{role} records", "leave them out, and the target's outputs on them", MEMBERS)
    pool, names, groups = models.pool, models.pool.examples.class_names, members.groups
    if (groups is None) != (bank.groups is None):
        raise InputError(
            "known members have groups exactly where the bank dealt whole groups: give the group of each member, "
            "or none (`groups`)."
        )
    if pool.groups is not None and groups is not None:
        # No group of known members has a record in another set.
        groups = number_groups(groups) + int(pool.groups.max()) + 1
    nothing = np.zeros((len(members), 0), np.float32)
    member_examples = replace(members, inputs=nothing, class_names=names, groups=groups)
    end, at_hand = len(pool.examples), None
    if {"query", "holdout"} <= sets.keys():
        records = [sets[role].take(np.flatnonzero(pool.kept[role])) for role in ("query", "holdout")]
        at_hand = concatenate(
            [members, *(replace(examples, class_names=members.class_names) for examples in records)], "records"
        )
    wider = pool._replace(
        examples=concatenate([pool.examples, member_examples], "records"),
        members=slice(end, end + len(members)),
        at_hand=at_hand,
    )
    none = np.zeros((len(models), len(members)), bool)
    unknown = np.full(none.shape, np.nan, np.float32)
    added = {"membership": none, **dict.fromkeys(("log_odds", "correct", "confidences"), unknown)}
    widened = {name: np.concatenate([getattr(models, name), column], axis=1) for name, column in added.items()}
    return replace(models, pool=wider, **widened)


def pool_of(bank: Bank, records: int | None = None) -> tuple[Pool, Int[np.ndarray, " kept"]]:
    """The records that tests use, of all or of the first `records`, without inputs; and their columns in the bank."""
    columns, description = np.flatnonzero(~bank.dropped[:records]), bank.description
    kept = {role.value: ~bank.dropped[:records][getattr(bank, role)] for role in ROLES}
    alone = np.arange(bank.holdout.stop, description.records)
    examples = Examples(
        np.zeros((len(columns), 0), np.float32),
        bank.labels[columns],
        NO_CLASS if description.outputs in SCORED else description.names,
        "records",
        groups=None if bank.groups is None else np.r_[bank.groups, alone][columns],
    )
    alike = description.sampled_alike and Alike(
        **{"difficulty": NOT_MEASURED, **msgspec.structs.asdict(description.sampled_alike)}
    )
    sizes = [int(mask.sum()) for mask in kept.values()]
    return pool_of_sets(examples, sizes, kept=kept, sampled_alike=alike), columns


def target_outputs(path: Path | OutputsPlace, bank: Bank, columns: slice, of: str | None = None) -> Outputs:
    """A target's outputs on a set of the bank, as logits with the same log-odds, at the file's resolution: from a .npy
    file in the format of the bank's models, of records without classes also from a table of scores with the set `of`.
    """
    labels = np.where(bank.dropped, 0, bank.labels)[columns]
    if bank.description.outputs in (*SCORED, "log_odds"):
        return score_outputs(path, bank.description, len(labels), of)
    values = load_into(path, msgspec.structs.replace(bank.description, records=len(labels), counts=None))
    grid = outputs_of_first_view(bank.description, values, "float32", as_place(path).name)
    return replace(grid, values=as_logits(bank, values, labels), kind="logits")


def usable_models(bank: Bank) -> tuple[dict[int, float], dict[int, str]]:
    """Reads the outputs of every finished model, one file at a time. By number: the accuracy on its own training
    records, or why the outputs were refused.
    """
    accuracy, refused = {}, {}
    for model in bank.finished().tolist():
        try:
            accuracy[model] = own_accuracy(bank, model, model_outputs(bank, bank.outputs(model), model))
        except InputError as error:
            refused[model] = str(error)
    return accuracy, refused


def kinds_of(bank: Bank) -> list[str]:
    """The kind of each model, from its query and holdout records. Models of the holdout test have some of both sets,
    about as many as the query set has (`dealt_alike`), and not exactly one of the sets.
    """
    kept = np.flatnonzero(~bank.dropped[: bank.holdout.stop])
    of_queries = kept < bank.query.stop
    units = number_groups(units_of_records(bank.groups, bank.holdout.stop)[kept])
    order = np.argsort(units, kind="stable")
    starts = np.unique(units[order], return_index=True)[1]
    of_query = len(np.unique(units[of_queries]))
    kinds_of_models: list[str] = []
    for part in row_blocks(bank.membership):
        rows = bank.membership[part, : bank.holdout.stop][:, kept]
        some, every = (reduce.reduceat(rows[:, order], starts, axis=1) for reduce in (np.logical_or, np.logical_and))
        whole = (some == every).all(axis=1) & dealt_alike(some.sum(axis=1), of_query, len(starts))
        query, holdout = rows[:, of_queries].sum(axis=1), rows[:, ~of_queries].sum(axis=1)
        pure = (query == 0) | (query == of_queries.sum())
        mixed = whole & ~(pure & ((holdout == 0) | (holdout == (~of_queries).sum())))
        alone = np.where(pure, np.where(query > 0, Kind.FULLY, Kind.NEVER), Kind.HALF)
        kinds = np.where(holdout == 0, alone, np.where(mixed, Kind.MIXED, Kind.OTHER))
        kinds_of_models += map(Kind, kinds.tolist())
    return kinds_of_models
