"""Runs `jaxaudit shadows train`: deals a bank and trains its models here, or those that are missing."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxaudit.audits.ks.bank.plan import HOLDOUT_MODELS, SHADOW_MODELS
from jaxaudit.audits.ks.bank.train import train_bank
from jaxaudit.cli.groups import Machines, Network
from jaxaudit.cli.ks.budget import speed_of
from jaxaudit.cli.ks.designs import COSTS, make_designs
from jaxaudit.cli.networks import EPOCHS, HIDDEN, make_shadow_learner
from jaxaudit.cli.options import command_line, fields_of
from jaxaudit.cli.own_code import source_hash
from jaxaudit.cli.own_learner import load_learner
from jaxaudit.cli.own_model import parse_learner, source_hashes
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.read_sets import tell_of_large_numbers
from jaxaudit.cli.sets import GUESS, ShadowRecipe
from jaxaudit.cli.shadows.estimate import Recipes, estimate_of
from jaxaudit.cli.shadows.options import BankModels, PlanOptions, TrainOptions, used_options
from jaxaudit.cli.shadows.plan import bank_there, deal_of, describe, lay, refuse_other
from jaxaudit.cli.shadows.sets import BankSets, read_bank_sets
from jaxaudit.cli.shadows.unfinished import unfinished_models
from jaxaudit.cli.show import show_text
from jaxaudit.cli.trial import estimate, timed
from jaxaudit.cli.work import INTERRUPTED, Interrupted
from jaxaudit.cli.workers import Crew, crew
from jaxaudit.data import Examples, is_image
from jaxaudit.data.bank.bank import MEMBERSHIP, Bank, finished_in, load_bank
from jaxaudit.data.bank.description import Description
from jaxaudit.ensemble import Speed
from jaxaudit.ensemble.train import WHOLE_FITS_PER_BATCH
from jaxaudit.errors import InputError
from jaxaudit.learners import Learner, SteppedLearner
from jaxaudit.runs.lock import working_in

COMMAND = "shadows train"
PACKAGES = ("jaxaudit", "jax", "jaxlib", "flax", "optax", "numpy")


def train(options: TrainOptions) -> None:
    """Deals the training sets, or those of more models, and trains what is missing.

    Raises:
        InputError: the sets cannot be used, or `--out` contains something else, or a bank of something else.
        Interrupted: for Ctrl-C; what is trained stays.
    """
    key = jax.random.key(options.models.seed)
    sets = read_bank_sets(key, options.data)
    options = _filled(options, sets)
    tell_of_large_numbers(options.model.model if options.model.learner is None else None, sets.parts)
    query = _query(sets)
    recipes = _recipes(options, query, len(sets.labels))
    planned = _as_plan(options, recipes)
    out, there = bank_there(planned)
    options = replace(options, models=replace(options.models, models=_models(options, there, sets)))
    planned = _as_plan(options, recipes)
    speed = _speed(options, query, recipes.learners[0])
    usual = WHOLE_FITS_PER_BATCH if speed is None else speed.models_per_batch
    number = _number(out, there, options.recipe.models_per_batch) or usual
    options = replace(options, recipe=replace(options.recipe, models_per_batch=number))
    device = jax.local_devices()[0]
    description = describe(
        *(planned, sets, command_line(COMMAND, options, used_options(options))),
        models_per_batch=number,
        device=_devices(f"{device.platform}: {device.device_kind}", "" if there is None else there.device),
        versions=_versions({} if there is None else there.versions),
    )
    spread = options.recipe.spread
    refuse_other(out, there, description)
    dealt = deal_of(planned, sets, description)
    told = estimate_of(out, there, sets, description, dealt[MEMBERSHIP], recipes, speed, number, spread)
    if options.recipe.dry_run:
        if spread:
            told += _timed(out, there, lambda at: lay(at, dealt, None, description), key, sets, recipes, options)
        show_text("\n".join(told) + "\n")
        return
    lay(out, dealt, there, description)
    bank = load_bank(out)
    for line in told:
        say(line)
    with working_in(out):
        _train(out, bank, key, sets, recipes, number, options.recipe)
    show_text(f"{out}: {len(bank)} shadow models trained.\nWhat it can answer: jaxaudit shadows show {out}\n")


def _number(out: Path, there: Description | None, wanted: int | None) -> int | None:
    """Models per batch: as the bank has it, if any of its models is trained.

    Raises:
        InputError: another number is wanted for the rest.
    """
    known = None if there is None else there.models_per_batch
    if there is None or known is None or not len(finished_in(out, there.models)):
        return wanted or known
    if wanted not in (None, known):
        raise InputError(
            f"--models-per-batch {wanted}: models of this bank were trained {known} at a time, and in batches of "
            "another size they would differ by rounding; leave it out."
        )
    return known


def _here() -> dict[str, str]:
    """The versions that models are trained with now."""
    return {name: version(name) for name in PACKAGES}


def _versions(there: Mapping[str, str]) -> dict[str, str]:
    """The versions that models of a bank are trained with; several where they differ."""
    return {name: _devices(each, there.get(name, "")) for name, each in _here().items()}


def _devices(here: str, there: str) -> str:
    """The devices that the models of a bank are trained on."""
    known = there.split(", ") if there else []
    return ", ".join(dict.fromkeys([*known, here]))


def _timed(
    out: Path,
    there: Description | None,
    lay_at: Callable[[Path], None],
    key: jax.Array,
    sets: BankSets,
    recipes: Recipes,
    options: TrainOptions,
) -> tuple[str, ...]:
    """What the workers take for the models that are missing, from a bank beside `out` that is not kept."""
    beside = next(parent for parent in out.absolute().parents if parent.is_dir())
    try:
        trial = tempfile.TemporaryDirectory(prefix=".bank-", dir=beside)
    except OSError as error:
        raise InputError(f"{beside.name} cannot be written ({error.strerror or error}).") from error
    with trial as folder:
        lay_at(Path(folder) / "bank")
        bank, inputs = load_bank(Path(folder) / "bank"), np.concatenate(sets.parts)
        done = finished_in(out, len(bank)) if there is not None else []
        missing = np.setdiff1d(np.arange(len(bank)), done).tolist()

        def work(who: Crew, progress: Callable[[int, int], None]) -> None:
            execution = who.execution(options.recipe.models_per_batch, progress, None)
            train_bank(key, bank, inputs, recipes.learners, missing, execution=execution)

        return estimate(COMMAND, len(missing), timed(work, options.recipe))[1]


def _train(
    out: Path, bank: Bank, key: jax.Array, sets: BankSets, recipes: Recipes, number: int, machines: Machines
) -> None:
    inputs = np.concatenate(sets.parts)
    try:
        with progress_on_stderr("training") as progress, crew(machines) as who:
            before = len(bank) + 1
            while len(missing := bank.missing()):
                if len(missing) == before:
                    raise InputError(
                        f"workers trained {before} models, and their outputs are not in {out.name}: --out must be a "
                        "folder that all machines see."
                    )
                before = len(missing)
                with unfinished_models(out, missing, len(bank), _here()) as (models, checkpoints):
                    execution = who.execution(number, progress, checkpoints)
                    train_bank(key, bank, inputs, recipes.learners, models.tolist(), execution=execution)
    except KeyboardInterrupt as error:
        done = len(bank.finished())
        say(f"Interrupted: {done} of {len(bank)} models are trained; the same command continues from there.")
        raise Interrupted(INTERRUPTED) from error


def _query(sets: BankSets) -> Examples:
    count = sets.counts.query
    return Examples(sets.parts[0], np.asarray(sets.labels[:count]), sets.class_names, "query set")


def _speed(options: TrainOptions, query: Examples, learner: Learner) -> Speed | None:
    """How fast models of the guess are trained here; None for a learner without steps."""
    if not isinstance(learner, SteppedLearner):
        return None
    name = (options.model.learner or options.model.model or "", options.model.hidden or "")
    return speed_of(name, options, query, learner)


def _filled(options: TrainOptions, sets: BankSets) -> TrainOptions:
    """The options with what was not given."""
    if options.model.learner is not None:
        return options
    image = is_image(_query(sets))
    model = replace(
        options.model,
        model=options.model.model or ("liu-cnn" if image else "mlp"),
        hidden=HIDDEN if options.model.hidden is None else options.model.hidden,
    )
    return replace(options, model=model, recipe=replace(options.recipe, epochs=options.recipe.epochs or EPOCHS))


def _models(options: TrainOptions, there: Description | None, sets: BankSets) -> int:
    usual = HOLDOUT_MODELS if sets.counts.holdout else SHADOW_MODELS
    return options.models.models or (there.models if there is not None else usual)


def _recipes(options: TrainOptions, query: Examples, records: int) -> Recipes:
    record, own = query.inputs.shape[1:], options.model.learner
    if own is not None:
        return Recipes((GUESS,), (load_learner(own, record, len(query.class_names)),), (1.0,))

    def make(network: Network, recipe: ShadowRecipe) -> SteppedLearner:
        return make_shadow_learner(network, recipe, query, records)

    designs = make_designs(options.models.designs, options.model, options.recipe, record, make)
    names = (GUESS, *(design.name for design in designs))
    learners = (make(options.model, options.recipe), *(design.learner for design in designs))
    return Recipes(names, learners, tuple(COSTS[name] for name in names))


def _as_plan(options: TrainOptions, recipes: Recipes) -> PlanOptions:
    """The deal of the same bank."""
    several = ",".join(recipes.names) if len(recipes.names) > 1 else None
    models = BankModels(options.models.seed, models=options.models.models, designs=several, recipe=_in_words(options))
    return PlanOptions(options.data, models, options.place)


def _in_words(options: TrainOptions) -> str:
    """The recipe of the guess: every option of the network and its training, and the sources of one's own code."""
    own = options.model.learner
    if own is not None:
        digest = source_hash(parse_learner(own))
        return ", ".join([f"learner {own}", *([f"source of learner {digest}"] if digest else [])])
    facts = [
        f"{field.flag.removeprefix('--').replace('-', ' ')} {_shown(field.value)}"
        for field in fields_of(options)
        if field.panel in ("Model", "Training")
        and field.declared.decides
        and field.value not in (None, ())
        and field.name != "models_per_batch"
    ]
    recipe = options.recipe
    sources = source_hashes(options.model.model, recipe.optimizer, recipe.augment)
    return ", ".join([*facts, *(f"source of {role} {digest}" for role, digest in sources.items())])


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
