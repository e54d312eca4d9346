"""Runs `jaxaudit scores lm`: scores records of text, and writes the table."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxaudit.cli.job import Summary
from jaxaudit.cli.parsers import parse_template
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.scores.command import LMOptions
from jaxaudit.cli.scores.written import scored_summary
from jaxaudit.cli.texts import read_told, tell_of_chats, tell_of_groups
from jaxaudit.data.cache import cache_dir
from jaxaudit.data.deal_record import DealtSide, dealt_side
from jaxaudit.data.group_values import group_values, number_groups
from jaxaudit.data.paths import exists, expanded
from jaxaudit.data.scores.columns import columns_of
from jaxaudit.data.scores.copies import refuse_copies, refuse_repeated
from jaxaudit.data.scores.names import other_sets
from jaxaudit.data.scores.table import set_of
from jaxaudit.data.scores.writing import write_scores
from jaxaudit.data.sequences import prompts_of
from jaxaudit.data.texts import SETS, Texts
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.models.language_model import LanguageModel

ROLES = ("baseline", "before", "unused", "used")


def score_texts(options: LMOptions) -> Summary:
    """Scores records of text by every model and writes the table."""
    folders = {"target": (options.adapter or options.model,), **{role: getattr(options, role) for role in ROLES}}
    refuse_repeated(folders)
    _refuse_folders(options, folders)
    sides = _sides(options)
    sets, columns = _records(options, sides)
    template = options.template and parse_template(options.template)
    from jaxaudit.metrics.token_difficulty import ORDERS, token_difficulty
    from jaxaudit.models.language_model import LanguageModel
    from jaxaudit.models.token_scores import SCORES, token_scores

    models = {
        name: LanguageModel(whole, options.precision, adapter)
        for role, role_folders in folders.items()
        for name, folder in _names(role, role_folders)
        for whole, adapter in [_parts(options, folder)]
    }
    for note in dict.fromkeys(note for model in models.values() for note in model.notes):
        say(note)
    tell_of_chats(sets, template, models.values())
    _warn_of_bases(options.model, models.values())
    encoded = {
        name: [tokens for texts in sets for tokens in model.encode_texts(texts, template, options.answer_start)]
        for name, model in models.items()
    }
    for name, model in models.items():
        long = sum(len(tokens.tokens) > model.positions for tokens in encoded[name]) if model.positions else 0
        if long:
            raise InputError(
                f"{long:,} of {len(encoded[name]):,} records have more tokens than the {model.positions:,} positions "
                f"of {model.name}; shorten them, or leave them out of every set."
            )
    tokens = {name: sum(len(tokens.tokens) for tokens in model_tokens) for name, model_tokens in encoded.items()}
    total, done = sum(tokens.values()), 0
    counted = f"{len(models)} model{'s' if len(models) > 1 else ''}"
    say(f"scoring {len(columns['set']):,} records by {counted}: {total:,} tokens")
    columns["covariate.tokens"] = [len(tokens.tokens) - tokens.start for tokens in encoded["target"]]
    if options.words and _all_dealt(sides):
        difficulty = token_difficulty(encoded["target"], columns.get("group", columns.get("pair")))
        columns |= {f"covariate.words_{order}": numbers for order, numbers in zip(ORDERS, difficulty.T, strict=True)}
    with progress_on_stderr("scoring", shorter="fewer records, or a GPU, would take less") as progress:

        def report_progress(more: int) -> None:
            nonlocal done
            done += more
            progress(done, total)

        try:
            for name, model in models.items():
                scores = token_scores(model, encoded[name], report_progress)
                columns |= {f"{name}.{score}": scores[score] for score in SCORES}
        except KeyboardInterrupt:
            if done and os.access(cache_dir(), os.W_OK):
                say(f"the scores of {done:,} of {total:,} tokens are kept: the same command goes on from there")
            raise
    kept = np.all([np.isfinite(columns[f"{name}.{score}"]) for name in models for score in SCORES], axis=0)
    left_out = int((~kept).sum())
    if left_out:
        say(f"left out: {left_out:,} records without a finite number by every model, such as those of one token")
    if not kept.any():
        raise InputError(
            "no record has a finite score by every model; are the answers empty, or the weights not finite?"
        )
    columns = {name: [v for v, k in zip(of, kept, strict=True) if k] for name, of in columns.items()}
    # Two folders may hold one model.
    refuse_copies(columns_of(columns), np.array(columns["set"]), options.table.name)
    write_scores(options.table, columns)
    return scored_summary(options.table, columns, counted)


def _parts(options: LMOptions, folder: Path) -> tuple[Path, Path | None]:
    """The folder of a whole model, and that of the adapter beside it, if the named folder is one."""
    from jaxaudit.models.pretrained import ADAPTER

    is_adapter = options.adapter is not None and (folder == options.adapter or exists(folder / ADAPTER))
    return (options.model, folder) if is_adapter else (folder, None)


def _refuse_folders(options: LMOptions, folders: Mapping[str, Sequence[Path]]) -> None:
    """Refuses folders that are no models, before the texts are read, which takes longer.

    Raises:
        InputError: as `model_entries`; or a folder is an adapter, and nothing names the model that it is of.
    """
    from jaxaudit.models.model_folder import model_entries
    from jaxaudit.models.pretrained import ADAPTER

    for role, role_folders in folders.items():
        for folder in role_folders:
            if options.adapter is None and exists(folder / ADAPTER):
                option = f"--{role} {folder}" if role in ROLES else str(folder)
                role_words = f" --{role} {folder}" if role in ROLES else ""
                adapter = "TARGET_ADAPTER" if role in ROLES else folder
                advice = "If the target is a whole model, merge this adapter" if role in ROLES else "Or merge the two"
                raise InputError(
                    f"{option}: is an adapter, and no --adapter says that MODEL is the model that it was trained on. "
                    f"Name that model as MODEL, and the target as an adapter of it: `jaxaudit scores lm BASE --adapter "
                    f"{adapter}{role_words}`. {advice} by peft's merge_and_unload, and name the folder it is saved in."
                )
            model_entries(*_parts(options, folder))


def _warn_of_bases(folder: Path, models: Iterable["LanguageModel"]) -> None:
    """Warns of adapters that state another base model: beside one of the same shape, nothing else would show it."""
    adapters: dict[str, list[str]] = {}
    for model in models:
        if model.other_base is not None:
            adapters.setdefault(model.other_base, []).append(model.name)
    for base, names in adapters.items():
        base_text = f"{base!r} as the base model" if base else "no base model"
        name = repr(base) if base else "the model that it was trained on"
        say(
            f"WARNING: {', '.join(names)}: states {base_text}, and is scored beside {folder}. Beside another model of "
            f"the same shape its scores mean nothing, and no check notices it. Is {folder} that model under another "
            f"name? Then go on. If not, press Ctrl-C and name the folder of {name} as MODEL."
        )


def _sides(options: LMOptions) -> list[DealtSide | None]:
    """The sides of a deal that the files are.

    Raises:
        InputError: a file is another side than it is given as, or they are of several deals.
    """
    of_sets = {"query": options.query, "holdout": options.holdout, "members": options.members}
    named_sides = [(name, path, dealt_side(expanded(path))) for name, path in of_sets.items() if path is not None]
    for name, path, side in named_sides:
        if side is not None and side.name != name:
            raise InputError(
                f"{path}: is given as the set `{name}`, and its deal (deal.json beside it) made it the set "
                f"`{side.name}`: are files exchanged?"
            )
    sides = [*(side for *_, side in named_sides), *(dealt_side(expanded(path)) for path in options.texts)]
    if len({side.deal for side in sides if side is not None}) > 1:
        raise InputError(
            "the files are of several deals, by the deal.json beside them: their sets were not dealt from one another. "
            "Give the files of one deal, that by which the model was trained."
        )
    return sides


def _all_dealt(sides: Sequence[DealtSide | None]) -> bool:
    """Whether every file is a side of a random deal; says what follows if not.

    Where sets are of different sources, words that only one of them has would make it look easier or harder than it is
    for a model, and so used.
    """
    all_dealt = None not in sides
    if not all_dealt:
        say("no covariates of words: no deal.json beside the files says that their sets were dealt at random")
    return all_dealt


def _records(options: LMOptions, sides: Sequence[DealtSide | None]) -> tuple[list[Texts], dict[str, Any]]:
    """The records of each file, and the columns that are no score, of the records of all files."""
    files_of_sets = {"query": options.query, "holdout": options.holdout, "members": options.members}
    named_sets = [(of, read_told(path)) for of, path in files_of_sets.items() if path is not None]
    named_sets += [(None, read_told(path)) for path in options.texts]
    read = [texts for _, texts in named_sets]
    tell_of_groups(read)
    if len({texts.form for texts in read}) > 1:
        raise InputError(
            f"records have different forms ({', '.join(sorted({texts.form for texts in read}))}); give all sets one "
            "form, or it tells them apart."
        )
    sets = [name for of, texts in named_sets for name in (_sets(texts) if of is None else [of] * len(texts.answers))]
    _refuse_shared(read, sets)
    columns: dict[str, Any] = {"set": sets}
    for name in ("index", "group", "pair"):
        columns_of_sets = [texts.column(name) or [None] * len(texts.answers) for texts in read]
        values = [value for column in columns_of_sets for value in column]
        if any(value is not None for value in values):
            texts = any(isinstance(value, str) for value in values)
            columns[name] = [None if value is None else str(value) for value in values] if texts else values
            if name == "group" and not all(side is not None and side.has_groups for side in sides):
                # No value of a group is written, but the random number of a deal; other records than these need none.
                rows = np.flatnonzero(np.isin(sets, SETS[:3]))
                of_rows = dict(
                    zip(rows.tolist(), number_groups(group_values(values, rows, "records")).tolist(), strict=True)
                )
                columns[name] = [of_rows.get(row) for row in range(len(values))]
    if options.keep_text:
        template = options.template and parse_template(options.template)
        columns["text"] = [
            prompt + answer
            for texts in read
            for prompt, answer in zip(prompts_of(texts, template), texts.answers, strict=True)
        ]
    return read, columns


def _refuse_shared(read: Sequence[Texts], sets: Sequence[str]) -> None:
    """Refuses a record that is in two sets, such as one file that is given as both: it would hide use."""
    records = [record for texts in read for record in zip(texts.prompts, texts.answers, strict=True)]
    first: dict[tuple[str, str], str] = {}
    shared = [
        (first[record], of) for record, of in zip(records, sets, strict=True) if first.setdefault(record, of) != of
    ]
    if shared:
        one, other = shared[0]
        raise InputError(
            f"{len(shared):,} records are in two sets, such as {one} and {other}; is one file given twice? Give each "
            "record to one set: a copy hides use."
        )


def _sets(texts: Texts) -> list[str]:
    """The set of each record, by its line, or else by the file's name, as `deal` names files."""
    names_of_sets, file_name = texts.column("set"), texts.source.partition(".")[0]
    if names_of_sets is None and file_name in SETS:
        say(f"{texts.source}: taken for the set {file_name!r}, after its name")
        return [file_name] * len(texts.answers)
    if names_of_sets is None:
        raise InputError(
            f"{texts.source}: lines have no 'set'; add it, or give a file for each set: --query, --holdout, --members."
        )
    sets = [set_of("" if name is None else str(name)) for name in names_of_sets]
    wrong = [row for row, name in enumerate(sets, 1) if not name]
    if wrong:
        raise InputError(
            f"{texts.source}: record {wrong[0]}: its 'set' must be one of {', '.join(SETS)}; "
            f"{other_sets(names_of_sets, SETS)}."
        )
    return sets


def _names(role: str, folders: Sequence[Path]) -> list[tuple[str, Path]]:
    """The beginning of the names of each model's columns: the role; of several models also the folder, or a number."""
    names = [re.sub(r"[^\w.-]", "_", folder.resolve().name) for folder in folders]
    if len(set(names)) < len(names):
        names = [str(number) for number in range(1, len(folders) + 1)]
    return [(role if len(names) == 1 else f"{role}.{name}", path) for name, path in zip(names, folders, strict=True)]
