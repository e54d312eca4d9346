"""Runs `jaxaudit scores`: scores records of text, or joins logs of several models, and writes the table."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from jaxaudit.audits.ks.by_group import holdout_groups_needed
from jaxaudit.cli.parsers import parse_template
from jaxaudit.cli.progress import progress_on_stderr, say
from jaxaudit.cli.read_sets import read_told, tell_of_chats, tell_of_groups
from jaxaudit.cli.scores import LMEvalOptions, LMOptions, OpenUnlearningOptions
from jaxaudit.cli.show import Summary
from jaxaudit.data.cache import cache_dir
from jaxaudit.data.deals import DealtSide, dealt_side
from jaxaudit.data.labels import group_values, number_groups
from jaxaudit.data.paths import exists, expanded
from jaxaudit.data.scores.columns import ROLES, ModelRole, columns_of, refuse_copies, refuse_repeated, set_names
from jaxaudit.data.scores.logs import EvaluationLog, Set, model_names, read_log, read_samples, table_of_logs
from jaxaudit.data.scores.table import score_table, write_scores
from jaxaudit.data.sequences import prompts_of
from jaxaudit.data.texts import SETS, Texts
from jaxaudit.errors import InputError

if TYPE_CHECKING:
    from jaxaudit.models.language_model import LanguageModel


def score_texts(options: LMOptions) -> Summary:
    """Scores records of text by every model and writes the table."""
    folders = options.by_role((options.adapter or options.model,))
    refuse_repeated(folders)
    _refuse_folders(options, folders)
    sides, template = _sides(options), options.template and parse_template(options.template)
    sets, columns = _records(options, sides, template)
    from jaxaudit.metrics.difficulty import ORDERS, token_difficulty
    from jaxaudit.models.causal import SCORES, token_scores
    from jaxaudit.models.language_model import LanguageModel

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
    total, done = sum(len(tokens.tokens) for model_tokens in encoded.values() for tokens in model_tokens), 0
    counted = f"{len(models)} model{'s' if len(models) > 1 else ''}"
    say(f"scoring {len(columns['set']):,} records by {counted}: {total:,} tokens")
    target = encoded["target"]
    columns["covariate.tokens"] = [len(tokens.tokens) - tokens.start for tokens in target]
    columns["covariate.prompt_tokens"] = [tokens.start for tokens in target]
    if None in sides:
        # Words that only one of several sources has would make its set look easier or harder than it is, and so used.
        say("no covariates of words: no deal.json beside the files says that their sets were dealt at random")
    else:
        difficulty = token_difficulty(target, columns.get("group", columns.get("pair")))
        columns |= {f"covariate.words_{order}": numbers for order, numbers in zip(ORDERS, difficulty.T, strict=True)}
    with progress_on_stderr("scoring") as progress:

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
    for of, count in Counter(compress(columns["set"], ~kept)).items():
        say(f"left out: {count:,} records of {of} without a finite number by every model, such as those of one token")
    if not kept.any():
        raise InputError(
            "no record has a finite score by every model; are the answers empty, or the weights not finite?"
        )
    columns = {name: [*compress(of, kept)] for name, of in columns.items()}
    # Two folders may hold one model.
    refuse_copies(columns_of(columns, options.scores.name), np.array(columns["set"]), options.scores.name)
    write_scores(options.scores, columns)
    return scored_summary(options.scores, columns, counted)


def _parts(options: LMOptions, folder: Path) -> tuple[Path, Path | None]:
    """The folder of a whole model, and that of the adapter beside it, if the named folder is one."""
    from jaxaudit.models.pretrained import ADAPTER

    is_adapter = options.adapter is not None and (folder == options.adapter or exists(folder / ADAPTER))
    return (options.model, folder) if is_adapter else (folder, None)


def _refuse_folders(options: LMOptions, folders: Mapping[ModelRole, Sequence[Path]]) -> None:
    """Refuses folders that are no models, or adapters of no named model, before texts are read, which takes longer."""
    from jaxaudit.models.pretrained import ADAPTER, model_entries

    for role, role_folders in folders.items():
        for folder in role_folders:
            if options.adapter is None and exists(folder / ADAPTER):
                is_target = role == "target"
                option = str(folder) if is_target else f"--{role} {folder}"
                adapter = folder if is_target else f"TARGET_ADAPTER --{role} {folder}"
                raise InputError(
                    f"{option}: is an adapter, and no --adapter says that MODEL is the model that it was trained on. "
                    f"Name that model as MODEL, and the target as an adapter of it: `jaxaudit scores lm BASE --adapter "
                    f"{adapter}`. Or merge the adapter by peft's merge_and_unload, and name the folder it is saved in."
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
    """The sides of a deal that the files are."""
    sides = [dealt_side(expanded(path)) for path in options.texts]
    for path, side in zip(options.texts, sides, strict=True):
        name = path.name.partition(".")[0]
        if side is not None and name in SETS and side.name != name:
            raise InputError(
                f"{path}: has the name of the set `{name}`, and its deal (deal.json beside it) made it the set "
                f"`{side.name}`: are files exchanged?"
            )
    if len({side.deal for side in sides if side is not None}) > 1:
        raise InputError(
            "the files are of several deals, by the deal.json beside them: their sets were not dealt from one another. "
            "Give the files of one deal, that by which the model was trained."
        )
    return sides


def _records(
    options: LMOptions, sides: Sequence[DealtSide | None], template: str | None
) -> tuple[list[Texts], dict[str, Any]]:
    """The records of each file, and the columns that are no score, of the records of all files."""
    read = [read_told(path) for path in options.texts]
    tell_of_groups(read)
    if len({texts.form for texts in read}) > 1:
        raise InputError(
            f"records have different forms ({', '.join(sorted({texts.form for texts in read}))}); give all sets one "
            "form, or it tells them apart."
        )
    sets = [name for texts in read for name in _sets(texts)]
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
            f"{texts.source}: lines have no 'set'; add it, or give a file for each set: query.jsonl, holdout.jsonl and "
            "members.jsonl."
        )
    return set_names(names_of_sets, texts.source)


def _names(role: str, folders: Sequence[Path]) -> list[tuple[str, Path]]:
    """The beginning of the names of each model's columns: the role; of several models also the folder, or a number."""
    names = [re.sub(r"[^\w.-]", "_", folder.resolve().name) for folder in folders]
    if len(set(names)) < len(names):
        names = [str(number) for number in range(1, len(folders) + 1)]
    return [(role if len(names) == 1 else f"{role}.{name}", path) for name, path in zip(names, folders, strict=True)]


def join_logs(options: OpenUnlearningOptions) -> Summary:
    """Writes one table of the logs of open-unlearning of all models."""
    return _joined(options, partial(read_log, muse=options.muse))


def join_samples(options: LMEvalOptions) -> Summary:
    """Writes one table of the samples of lm-evaluation-harness of all models."""
    tasks: dict[Set, str] = {of: task for of in get_args(Set) if (task := getattr(options, of)) is not None}
    if len({*tasks.values()}) < len(tasks):
        raise InputError("one task is given as two sets: a copy of a record hides use. Give each set its own task.")
    return _joined(options, lambda folder: read_samples(folder, tasks))


def _joined(options: OpenUnlearningOptions | LMEvalOptions, read: Callable[[Path], EvaluationLog]) -> Summary:
    paths = options.by_role(options.targets)
    refuse_repeated(paths)
    logs: dict[ModelRole, dict[str, EvaluationLog]] = {
        role: dict(zip(model_names(role_paths), map(read, role_paths), strict=True))
        for role, role_paths in paths.items()
        if role_paths
    }
    if options.records_per_group is None:
        # Of models that used none of whole authors, 15% were accused so, in place of 5% (`experiments/score_rates.py`).
        say(
            "No groups are stated. If records were forgotten in whole groups, such as authors, say how many in a row "
            "are of one (--records-per-group): else models that never used them are accused far too often."
        )
    joined_table = table_of_logs(logs, options.records_per_group)
    # What cannot be judged is not written.
    score_table(joined_table.columns, name=options.scores.name)
    write_scores(options.scores, joined_table.columns)
    for part, count in joined_table.left_out.items():
        if count:
            say(
                f"{count:,} of {count + joined_table.records[part]:,} records of {part} are left out: some log has no "
                "finite number of a score of theirs."
            )
    for column in joined_table.empty:
        say(f"{column}: no record has a finite number; the column is empty there. Did the model diverge?")
    for column in joined_table.constant:
        say(f"{column} is left out: it has the same number for all records.")
    records = ", ".join(f"{count:,} records of {part}" for part, count in joined_table.records.items())
    models = ", ".join(f"{len(role_paths)} {role}" for role, role_paths in paths.items() if role_paths)
    scores = dict.fromkeys(column.rpartition(".")[2] for column in joined_table.columns if column.startswith(ROLES))
    return written_summary(options.scores, f"{records}. Models: {models}.", f"Scores: {', '.join(scores)}.")


def scored_summary(path: Path, columns: Mapping[str, Any], by: str) -> Summary:
    """The summary of a table with these columns."""
    sets = columns["set"]
    counts = Counter(sets)
    counts_text = ", ".join(f"{name} {counts[name]:,}" for name in SETS if counts[name])
    query, holdout = (
        {group for group, of in zip(columns.get("group", ()), sets, strict=False) if of == name} for name in SETS[:2]
    )
    # With groups in both sets there is no test of whole ones; of few whole ones, none can be named.
    single = bool(query & holdout) or (bool(query) and len(holdout) >= holdout_groups_needed(len(query)))
    head = f"{len(sets):,} records ({counts_text}), scored by {by}."
    return written_summary(path, head, by=" --by group" if single else "")


def written_summary(path: Path, *lines: str, by: str = "") -> Summary:
    shown = shlex.quote(str(path))
    head, *more = lines
    return Summary((f"{shown}: {head}", *more, "", f"To judge: jaxaudit ks --scores {shown}{by}"))
