"""Runs `jaxaudit shadows add`, `import` and `show`: outputs of models of elsewhere become a bank's."""

import hashlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float32, Int

from jaxaudit import json_types
from jaxaudit.audits.bank_odds import log_odds_of, model_outputs
from jaxaudit.audits.ks.bank import COMPARED, RowMatch, first_models, match_row
from jaxaudit.audits.ks.train import Available, available_tests
from jaxaudit.audits.open_bank import kinds_of, pool_of, usable_models
from jaxaudit.cli.progress import say
from jaxaudit.cli.shadows import AddOptions, ImportOptions, ShowOptions
from jaxaudit.cli.show import Summary
from jaxaudit.data.bank import other_tools
from jaxaudit.data.bank.bank import LABELS, MEMBERSHIP, Bank, bank_files, load_bank, write_outputs
from jaxaudit.data.bank.description import (
    SCORED,
    Counts,
    Description,
    checked,
    description_json,
    load_into,
    outputs_path,
)
from jaxaudit.data.bank.other_tools import Foreign, chosen_rows
from jaxaudit.data.examples import Sets
from jaxaudit.data.formats.arrays import StoredArray
from jaxaudit.data.formats.parsing import refuse_pickle
from jaxaudit.data.groups import groups_in_words
from jaxaudit.data.outputs.model_copies import refuse_odd_models
from jaxaudit.data.paths import entries, exists
from jaxaudit.errors import InputError, few, refuse_wrong, visible, without_folders, writing
from jaxaudit.metrics.deal import RATE
from jaxaudit.runs.directory import write_files
from jaxaudit.runs.unfinished import working_in
from jaxaudit.shadow_models import kind_words
from jaxaudit.version import __version__

Values = Float32[np.ndarray, "n views values"]
FIRST = 64
"""Rows that are compared before whole files are compared."""
LISTED = 5
"""The most files, or missing models, that a line names."""


class Placed(NamedTuple):
    """A file, the model that it belongs to, whether the bank lacks its outputs, and a digest of its numbers."""

    file: Path
    model: int
    new: bool
    digest: bytes


def add(options: AddOptions) -> Summary:
    """Adds the outputs in these files to the bank, in this order: all of them, or none if one is rejected.

    Files whose outputs do not show which model they belong to are named on stderr.
    """
    bank, model = load_bank(options.bank), options.model
    if model is not None and model >= len(bank):
        raise InputError(f"--model {model}: the bank has {len(bank)} models, numbered from 0.")
    with working_in(bank.directory):
        # Loaded again under the lock, because another process may have added outputs.
        bank = load_bank(options.bank)
        placed, unshown = _placed(bank, options.files, model)
        for placed_model in placed:
            if placed_model.new:
                _write(bank, placed_model)
    _tell_of_unshown(bank, unshown)
    lines = [f"{file.name}: {'added' if new else 'is there already'} as model {at}" for file, at, new, _ in placed]
    finished = len(bank.finished())
    about = "What is missing" if finished < len(bank) else "Which tests they allow"
    shown = shlex.quote(str(bank.directory))
    lines.append(f"{finished:,} of {len(bank):,} models have outputs. {about}: jaxaudit shadows show {shown}")
    return Summary(tuple(lines))


def _placed(bank: Bank, files: Sequence[Path], model: int | None) -> tuple[list[Placed], list[Path]]:
    """The model of each file, and the files whose outputs do not show their model; nothing is written."""
    missing, odds_by_model = bank.missing().tolist(), first_models(bank)
    # The first files are checked when there are others to compare them with, and again with the next files.
    early = (
        {number: outputs_path(bank.directory, number) for number in odds_by_model}
        if len(odds_by_model) < COMPARED
        else {}
    )
    placed, fits = list[Placed](), dict[int, RowMatch | None]()
    for file in files:
        values = load_into(file, bank.description)
        digest = _digest(values)
        again = next((placed_model.file for placed_model in placed if placed_model.digest == digest), None)
        if again is not None:
            # All files after it would be assigned to the wrong models.
            raise InputError(
                f"{file} and {again} have the same outputs, and two models never have; is one of them a copy that was "
                "saved under the wrong name?"
            )
        same_model = _identical(bank, values)
        if same_model is not None:
            if model not in (None, same_model):
                raise InputError(
                    f"{file}: has the very outputs that model {same_model} has already, and two models never have the "
                    f"same; is it the file of model {model}?"
                )
            placed.append(Placed(file, same_model, False, digest))
            continue
        number = _place(bank, file, missing, model)
        missing = [number_left for number_left in missing if number_left != number]
        placed.append(Placed(file, number, True, digest))
        log_odds = model_outputs(bank, values).log_odds
        if len(odds_by_model) < COMPARED:
            odds_by_model[number], early[number] = log_odds, file
        else:
            fits[number] = _checked(bank, file, number, log_odds, odds_by_model)
    for number, file in early.items():
        fits[number] = _checked(bank, file, number, odds_by_model[number], odds_by_model)
    return placed, [
        placed_model.file
        for placed_model in placed
        if placed_model.new and not ((fit := fits[placed_model.model]) and fit.shown)
    ]


def _tell_of_unshown(bank: Bank, unshown: list[Path]) -> None:
    """Names the files whose outputs do not show which model they belong to."""
    if not unshown:
        return
    names = few((visible(file.name) for file in unshown), LISTED)
    why = (
        "the training sets of this bank were not dealt by jaxaudit"
        if bank.description.seed is None
        else "they fit no training set clearly better than all others"
    )
    say(f"{names}: these outputs cannot show which model they are of ({why}); make sure that the files are in order")


def _place(bank: Bank, file: Path, missing: list[int], model: int | None) -> int:
    if model is None:
        if not missing:
            raise InputError(
                f"{file}: every model of {bank.directory} has outputs already ({len(bank)} models); `jaxaudit shadows "
                "plan` with more --models adds more."
            )
        return missing[0]
    if model not in missing and _is_usable(bank, model):
        raise InputError(
            f"{file}: model {model} has other outputs already; delete {outputs_path(bank.directory, model)} first if "
            "they are wrong."
        )
    return model


def _is_usable(bank: Bank, model: int) -> bool:
    try:
        bank.outputs(model)
    except InputError:
        return False
    return True


def _digest(values: Values) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()


def _identical(bank: Bank, values: Values) -> int | None:
    shaped = values.reshape(bank.description.shape)
    for model in bank.finished().tolist():
        try:
            stored = StoredArray(outputs_path(bank.directory, model))
        except InputError:
            continue
        pieces = ((0, FIRST), (FIRST, len(shaped)))
        with np.errstate(over="ignore"):
            if (stored.shape, stored.dtype.kind) == (shaped.shape, "f") and all(
                np.array_equal(stored[start:end].astype(np.float32), shaped[start:end]) for start, end in pieces
            ):
                return model
    return None


def _checked(
    bank: Bank, file: Path, model: int, log_odds: np.ndarray, odds_by_model: dict[int, np.ndarray]
) -> RowMatch | None:
    """How well outputs fit the membership masks. Files in the bank that fit another model are named on stderr."""
    match = match_row(bank, model, log_odds, odds_by_model)
    if match is None or match.other is None:
        return match
    own_path = outputs_path(bank.directory, model)
    why = (
        f"{file}: seems to be the outputs of model {match.other}, not of model {model}: it fits the training records "
        f"of model {match.other} by {match.fit:.1f} standard deviations, those of model {model} by {match.own_fit:.1f} "
        f"(right outputs are taken for another model's at most once in {1 / RATE:,.0f} times)."
    )
    if file != own_path:
        raise InputError(
            f"{why} Are the files in order? Give --model {match.other}; if you are sure, save it as {own_path} "
            "yourself."
        )
    # The file was already in the bank and may be right, so it does not prevent adding others.
    say(
        visible(
            f"{why} It is left as it is. If you are not sure of it, delete it, and add it again with --model "
            f"{match.other}; or make it again"
        )
    )
    return match


def _write(bank: Bank, placed: Placed) -> None:
    values = load_into(placed.file, bank.description)
    if _digest(values) != placed.digest:
        raise InputError(
            f"{placed.file}: changed while it was read; is something still writing it? Repeat the command."
        )
    with writing(bank.directory, "free space there and repeat the command."):
        write_outputs(bank.directory, placed.model, values, bank.description)


def make_bank(options: ImportOptions) -> Summary:
    """Writes the bank: completely or not at all."""
    directory, out = options.directory, options.out
    foreign = _read(directory, options.labels)
    order, counts = _columns(foreign.membership.shape[1], options.query_rows, options.holdout_rows)
    description = _described(foreign, counts)
    rows = foreign.membership[:, order]
    if rows.all() or not rows.any():
        which = "all records" if rows.all() else "no record"
        raise InputError(f"{directory}: every model is trained on {which}, so nothing can be compared.")
    arrays = {LABELS: foreign.labels[order].astype(np.int32), MEMBERSHIP: rows}
    outputs = {
        model: _output(read, order, description, model) for model, read in enumerate(foreign.read) if read is not None
    }
    shape, classes = (len(order), description.queries, -1), arrays[LABELS]
    # Copies, which keep no other view in memory.
    odds = [
        log_odds_of(description.outputs, make().reshape(shape), classes)[0].astype(np.float32)
        for make in outputs.values()
    ]
    if odds:
        refuse_odd_models(np.array(odds), list(outputs), directory.name, rows[list(outputs)])
    write_files(out, bank_files(description, arrays, outputs))
    return _summary(out, foreign, load_bank(out))


def _read(directory: Path, labels: Path | None) -> Foreign:
    if not exists(directory) or not directory.is_dir():
        raise InputError(f"{directory}: there is no such directory; is the path right?")
    foreign = other_tools.read_lira(directory, labels)
    if foreign:
        return foreign
    for path in entries(directory):
        refuse_pickle(path)
    raise InputError(
        f"{directory}: is no directory of a known tool: {other_tools.LIRA} leaves experiment-*/keep.npy, "
        f"{other_tools.PYTORCH} 0/keep.npy (as in exp/cifar10). For any other, such as Privacy Meter, write its arrays "
        "as a bank's files (docs/how_to/train_shadow_models_once.md), or `jaxaudit shadows plan` and `add`."
    )


def _columns(records: int, query_rows: Path | None, holdout_rows: Path | None) -> tuple[Int[np.ndarray, " n"], Counts]:
    """Indices in a pool of the query set, of the holdout, and of all other records, and how many each has."""
    holdout = np.zeros(0, int) if holdout_rows is None else chosen_rows(holdout_rows, records, "--holdout-rows")
    left = np.setdiff1d(np.arange(records), holdout)
    query = left if query_rows is None else chosen_rows(query_rows, records, "--query-rows")
    common_count = len(np.intersect1d(query, holdout))
    refuse_wrong(
        "",
        (
            f"--query-rows and --holdout-rows have {common_count} records in common; a record is of one set.",
            common_count,
        ),
        (f"--holdout-rows names all {records} records, so there is no query set.", not len(query)),
    )
    rest = np.setdiff1d(left, query)
    return np.concatenate([query, holdout, rest]), Counts(query=len(query), holdout=len(holdout), calibration=len(rest))


def _described(foreign: Foreign, counts: Counts) -> Description:
    models, records = foreign.membership.shape
    try:
        description = Description(
            format=1,
            outputs="logits",
            classes=foreign.classes,
            queries=foreign.views,
            records=records,
            models=models,
            counts=counts,
            recipe=foreign.recipe,
            versions={"jaxaudit": __version__, "numpy": version("numpy")},
        )
        # Decoding checks the limits of a description.
        return msgspec.json.decode(description_json(description), type=Description)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InputError(f"the models of {foreign.tool} make no bank: {error}.") from error


def _output(
    read: Callable[[], np.ndarray], order: Int[np.ndarray, " n"], description: Description, model: int
) -> Callable[[], np.ndarray]:
    """A function that reads the outputs of one model in the bank's format; it stores nothing."""

    def make() -> np.ndarray:
        values = read()
        if values.shape == (len(order), description.queries, description.classes):
            values = values[order].reshape(description.shape)
        checked(values, description, f"model {model}")
        return values

    return make


def _summary(out: Path, foreign: Foreign, bank: Bank) -> Summary:
    description = bank.description
    done = sum(model is not None for model in foreign.read)
    views = "" if description.queries == 1 else f" of {description.queries} views"
    lines = [
        f"{out}: {len(bank)} shadow models of {foreign.tool}, {done} of them finished; logits{views} on "
        f"{description.sizes.words} records."
    ]
    return Summary((*lines, f"Which tests it allows: jaxaudit shadows show {shlex.quote(str(out))}"))


SCHEMA = "jaxaudit.shadows/1"


def show_bank(options: ShowOptions) -> Summary:
    """A description of the bank."""
    bank = load_bank(options.bank)
    (accuracies, refused), kinds = usable_models(bank), kinds_of(bank)
    tests = available_tests(pool_of(bank)[0], [kinds[model] for model in accuracies], kinds)
    missing = [model for model in range(len(bank)) if model not in accuracies]
    facts = {
        "schema": SCHEMA,
        "bank": without_folders(str(options.bank)),
        "models": len(bank),
        "finished": len(accuracies),
        "missing": missing,
        "refused": {str(model): why for model, why in refused.items()},
        "training_accuracy": {str(model): json_types.number(accuracy) for model, accuracy in accuracies.items()},
        "tests": {answer.test.name: {"possible": answer.possible, "lacks": answer.lacks} for answer in tests},
        "next": _next(options.bank, bank, missing),
    }
    return Summary(tuple(_lines(options.bank, bank, facts, tests)), facts)


def _lines(path: Path, bank: Bank, facts: Mapping[str, Any], tests: Sequence[Available]) -> Iterator[str]:
    description = bank.description
    kind = description.outputs.replace("_", "-")
    views = "" if description.queries == 1 else f", {description.queries} views of each record"
    outputs_text = f"{kind} of {description.classes} classes"
    if description.outputs in SCORED:
        outputs_text = f"{kind}, {description.direction} for records that a model was trained on"
    yield f"{path}: {facts['finished']} of {len(bank)} shadow models finished; {outputs_text}{views}"
    yield f"  records: {description.sizes.words}"
    if bank.dropped.any():
        yield f"  dropped: {int(bank.dropped.sum()):,} of these records, because of copies"
    if bank.groups is not None:
        of_sets = Sets(query=bank.groups[bank.query], holdout=bank.groups[bank.holdout])
        yield f"  groups: {groups_in_words(of_sets)}"
    if description.recipe:
        yield f"  recipe: {description.recipe}"
    yield f"  seed: {'not dealt by jaxaudit' if description.seed is None else description.seed}"
    accuracy = {model: share for model, share in facts["training_accuracy"].items() if share is not None}
    if accuracy:
        worst, mean = min(accuracy, key=accuracy.__getitem__), np.mean(list(accuracy.values()))
        yield f"  accuracy on own training records: mean {mean:.1%}, lowest {accuracy[worst]:.1%} (model {worst})"
    yield "Tests that the finished models allow:"
    for answer in tests:
        yield f"  {answer.test.title}: {_answer(answer)}"
    for model, why in list(facts["refused"].items())[:LISTED]:
        yield f"Not usable, model {model}: {why}"
    missing = facts["missing"]
    if missing:
        yield f"Missing: {few(missing, LISTED)}. To add one:"
        yield f"  {facts['next']}"


def _answer(answer: Available) -> str:
    if answer.lacks:
        return f"no. {answer.lacks}"
    least = answer.test.least
    if not any(answer.planned[field] for field, count in least.items() if count):
        return "no. The bank has no models for it."
    have = (
        f"{answer.finished[field]} {kind_words(answer.kinds[field])} "
        f"({f'needed: {count}, ' if count else ''}by default {answer.usual[field]})"
        for field, count in least.items()
    )
    return f"{'yes' if answer.possible else 'no'}. Finished models: {', '.join(have)}."


def _next(path: Path, bank: Bank, missing: Sequence[int]) -> str:
    """The command that adds what is missing; empty if nothing is."""
    if missing and bank.description.models_per_batch is not None:
        return "(repeat the `jaxaudit shadows train` command that trained this bank)"
    return f"jaxaudit shadows add {shlex.quote(str(path))} FILE --model {missing[0]}" if missing else ""
