"""Reads the sets that a command line names: preprocessed, matched, and in the form that a network needs.

Texts, tables of scores and groups of records are read here, too. What was guessed is said on standard error.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped

from jaxaudit.cli.options import Options, refuse_options
from jaxaudit.cli.parsers import TEXTS, is_table, is_texts, parse_images, parse_template, parse_tokens
from jaxaudit.cli.progress import say
from jaxaudit.cli.recipe import make_adapters
from jaxaudit.cli.shared_options import Columns, Images, SetsFlags, ShadowNetwork
from jaxaudit.data import Examples, is_image, load, prepare_images
from jaxaudit.data.bank.bank import Bank
from jaxaudit.data.deals import NamedSets, dealt_side
from jaxaudit.data.examples import Role, Sets
from jaxaudit.data.groups import groups_file, groups_in_file, load_groups, number_sets
from jaxaudit.data.labels import COLUMN, INDEX_NAMES, MOST_CLASSES, are_dealt
from jaxaudit.data.outputs.outputs import Outputs
from jaxaudit.data.pairs import drop_overlap
from jaxaudit.data.paths import expanded
from jaxaudit.data.scores.table import ScoreTable, load_scores
from jaxaudit.data.sequences import BYTES, padded, sequences, word_tokenizer
from jaxaudit.data.texts import LONGEST_NAME, Texts, read_texts
from jaxaudit.errors import InputError, few, without_folders

if TYPE_CHECKING:
    from jaxaudit.models.language_model import LanguageModel


DENSE, LARGE = "mlp", 100
"""Numbers above this are too large to learn from with the usual learning rates."""
MOST_NAMES = 4
"""Files that a line names."""
_NUMBER = re.compile(r"-?\d{1,18}")


def read_examples(name: str, options: SetsFlags, groups: Sequence[str] = (), gaps: bool = False) -> Examples:
    """The records of a set without columns of `groups`: images in [0, 1], tables as float32, with `gaps` or refused."""
    if is_texts(name):
        raise InputError(
            f"{name}: texts are not read again for a bank, which has their numbers; leave the sets out. Without "
            "--shadows, `ks` trains language models on texts."
        )
    dealt_side(expanded(name))
    return read_inputs(name, options, scaled=True, groups=groups, gaps=gaps)


def read_sets_of(sets: NamedSets, options: Any, *, further: Sequence[str] = (), gaps: bool = False) -> Sets[Examples]:
    """These sets as their files have them, with the groups of the records of those that were dealt, if any are named.

    Columns of groups, and `further` ones, are no inputs. Tables have `gaps`, or are refused with them.
    """
    columns, groups = (*group_columns(options.groups), *further), options.groups
    read_others = partial(read_examples, options=replace(options, label=sets.label), groups=columns, gaps=gaps)
    network = options if isinstance(options, ShadowNetwork) else ShadowNetwork()
    read = text_reader([*sets.names.values()], network) or read_others
    return with_named_groups(sets.names.map(lambda _, name: read(name)), groups, sets.names)


def load_told(name: str, options: Columns, **how: Any) -> Examples:
    """`load`, with what was guessed or left out said on stderr; names of columns are of the tables among the sets."""
    columns: dict[str, Any] = {"label": options.label, "drop": options.drop} if is_table(name) else {}
    examples = load(name, **columns, **how)
    for note in examples.notes:
        say(f"{examples.name}: {note}")
    return examples


def tell_of_large_numbers(model: str | None, inputs: Iterable[np.ndarray]) -> None:
    """Prints on stderr that columns should be scaled, if a dense network would hardly learn from them."""
    largest = max(float(np.abs(array).max(initial=0)) for array in inputs) if model == DENSE else 0
    if largest > LARGE:
        say(
            f"the columns have numbers up to {largest:,.0f}, on which networks train badly or not at all: scale each, "
            "in all sets alike, such as to mean 0 and standard deviation 1"
        )


def tell_of_readings(files: Iterable[Outputs]) -> None:
    """Prints on stderr what files of outputs were taken for: a line for all that were taken for the same."""
    names: dict[tuple[str, ...], dict[str, None]] = {}
    for file in files:
        names.setdefault(file.reading, {})[file.name] = None
    for reading, file_names in names.items():
        if reading:
            say(f"{few(file_names, MOST_NAMES)}: read as {'; '.join(reading)}")


def tell_of_missing(path: Path, bank: Bank) -> None:
    """Prints on stderr how many models of a bank have no outputs, if any."""
    if missing := len(bank.missing()):
        say(f"{path}: {missing} of {len(bank)} shadow models have no outputs yet; the others are used")


def calibration_beside(calibration: Examples, sets: Sets[Examples]) -> Examples:
    """The calibration set without records of the other sets; says so on stderr."""
    for role, examples in sets.items():
        before, calibration = len(calibration), drop_overlap(examples, calibration)
        if count := before - len(calibration):
            say(f"{count} calibration records that are also in the {role.words} are left out, and outputs on them")
    return calibration


def read_inputs(name: str, options: Images, *, scaled: bool = False, **how: Any) -> Examples:
    """The records of the set `name`, as float32, read by `load` in this way.

    Integer images become floats in [0, 1] with an axis of channels. Floats are not changed, because a network may need
    them on its own scale, unless they are to be `scaled`, or a size or grayscale is requested.
    """
    size, gray = parse_images(options.images or "none")
    examples = load_told(name, options, image_size=size, gray=gray, **how)
    kept = not (scaled or size or gray) and np.issubdtype(examples.inputs.dtype, np.floating)
    if kept or not is_image(examples):
        return replace(examples, inputs=np.asarray(examples.inputs, np.float32))
    height, width = size or examples.inputs.shape[1:3]
    prepared = prepare_images(examples, (height, width), gray)
    before, after = ("x".join(map(str, images.inputs.shape[1:])) for images in (examples, prepared))
    say(f"{name}: {len(examples):,} images of {before}, read as {after} in [0, 1]")
    return prepared


def outputs_for(largest: int, name: str) -> int:
    """The number of outputs of a network whose largest label is this one."""
    if largest >= MOST_CLASSES:
        raise InputError(
            f"{name}: labels are {MOST_CLASSES:,} or more; they look like identifiers, not classes. If they are "
            "classes, say how many outputs the network has (--classes)."
        )
    return largest + 1


def label_outputs(examples: Examples, classes: int | None) -> Examples:
    """The same records with labels that are output indices, from 0.

    Integer labels are output indices already, even if the records have few classes. Text labels are indices into the
    sorted class names, so there must be as many names as outputs.

    >>> threes = Examples(np.zeros((2, 1), np.float32), np.array([0, 0]), ("3",), "threes")
    >>> label_outputs(threes, 10).labels
    array([3, 3], dtype=int32)
    """
    names = examples.class_names
    if len(names) == classes:
        return examples
    if not all(_NUMBER.fullmatch(name) for name in names):
        if classes is None:
            return examples
        raise InputError(
            f"{examples.name} has {len(names)} class names, but --classes is {classes}; label the records with output "
            "indices, from 0, or give all names in an array class_names."
        )
    numbers = np.array([int(name) for name in names])
    outputs = outputs_for(int(numbers.max()), examples.name) if classes is None else classes
    labels = numbers[examples.labels]
    outside = np.flatnonzero((labels < 0) | (labels >= outputs))
    if len(outside):
        raise InputError(
            f"{examples.name}: record {outside[0]} has label {labels[outside[0]]}, but the network has {outputs} "
            "outputs, numbered from 0; is --classes right?"
        )
    return replace(examples, labels=labels, class_names=tuple(map(str, range(outputs))))


def text_reader(names: Sequence[str], network: ShadowNetwork) -> Callable[[str], Examples] | None:
    """A function that returns the texts of a file as sequences of one length; None if the sets are no texts.

    The word vocabulary and the length are of all sets; with adapters, the tokenizer is that of the base model.
    """
    adapters = make_adapters(network)
    if not any(map(is_texts, names)):
        values = {"--recipe tokens": network.tokens, "--recipe template": network.template, "--recipe lora": adapters}
        refuse_options(values, f"is for texts ({', '.join(TEXTS)}), and the sets are none")
        return None
    sets = [read_beside_texts(name) for name in names]
    template = parse_template(network.template) if network.template else None
    if not adapters:
        words = parse_tokens(network.tokens or "bytes")
        tell_of_chats(sets, template)
        examples_of_sets = sequences(sets, word_tokenizer(sets, words, template) if words else BYTES, template=template)
    else:
        from jaxaudit.models.language_model import LanguageModel

        base = LanguageModel(Path(adapters.folder))
        for note in base.notes:
            say(note)
        tell_of_chats(sets, template, [base])
        encoded = [base.encode_texts(texts, template) for texts in sets]
        examples_of_sets = padded(sets, encoded, base.end, base.positions)
    return dict(zip(names, examples_of_sets, strict=True)).__getitem__


_NAMES = (*(b"%d" % digit for digit in range(10)), b"-", b'"')
"""Beginnings of a JSON value that is a number or a text."""


def read_told(name: str | Path) -> Texts:
    """The records of a file of texts; what was taken for the answer is said on stderr."""
    texts = read_texts(expanded(name))
    reading = texts.reading()
    if reading:
        say(f"{texts.source}: {reading}")
    return texts


def read_beside_texts(name: str) -> Texts:
    """As `read_told`, of a set that must be a file of texts as another set is one."""
    if not is_texts(name):
        raise InputError(
            f"{name}: is no file of texts ({', '.join(TEXTS)}), as another set is; give all sets as texts."
        )
    return read_told(name)


def tell_of_groups(sets: Collection[Texts]) -> None:
    """Where no record has a key `group`, says on stderr which keys could tell groups, by their names alone."""
    objects = [line_object for texts in sets for line_object in texts.objects()]
    if any(COLUMN in line_object for line_object in objects):
        return
    no_groups = {"set", "index", "pair", *(key for texts in sets for key in texts.keys)}
    columns: dict[str, Counter[bytes]] = {}
    for line_object in objects:
        for key in line_object.keys() - no_groups:
            value = bytes(line_object[key])
            if value[:1] in _NAMES and len(value) <= LONGEST_NAME:
                columns.setdefault(key, Counter())[value] += 1
    alike = [key for key, values in columns.items() if 2 <= len(values) <= values.total() / 2]
    if alike:
        listed = ", ".join(sorted(alike))
        say(
            f"no record has a key {COLUMN!r}, so records are taken one by one. These keys have one value for several "
            f"records: {listed}. If one of them says whose a record is, deal by it (`jaxaudit deal --groups KEY`, or "
            f"--by KEY for a verdict on each), or give its values as the key {COLUMN!r}"
        )


def tell_of_chats(sets: Iterable[Texts], template: str | None, models: Iterable["LanguageModel"] = ()) -> None:
    """Says on stderr how chats become texts for each of these models; with none, for one without a chat template."""
    if template or not any(texts.are_chats for texts in sets):
        return
    templates = {model.name: model.chat_template for model in models}
    rendered = [name for name, chat_template in templates.items() if chat_template is not None]
    if rendered:
        say(f"chats are written by the chat template of the tokenizer: {', '.join(rendered)}")
    if len(rendered) < len(templates) or not templates:
        plain = [name for name in templates if name not in rendered]
        of = f"{', '.join(plain)}: no chat template, so " if plain else ""
        say(f"{of}chats are read as the contents of their messages without roles, a line break behind each")


def with_dealt_groups(options: Options, *files: str) -> Options:
    """The options with the groups that the files of all sets have, where none were named; says so on stderr.

    Of one set alone only the random numbers of a deal are groups: nothing else tells them from another array of this
    name. Of several sets an array of an archive, and a key of texts, are groups if no value stands in two sets.
    """
    if options.groups is not None:
        return options
    groups_by_file = {file: _written_groups(file) for file in files}
    distinct = [np.unique(values) for values in groups_by_file.values() if values is not None]
    if not distinct or (len(files) == 1 and not are_dealt(distinct[0])):
        return options
    if len(distinct) < len(files):
        without = next(file for file, values in groups_by_file.items() if values is None)
        say(f"groups: none. {without_folders(without)} has no {COLUMN!r}, as the file of another set has")
        return options
    if sum(map(len, distinct)) > len(np.unique(np.concatenate(distinct))):
        say(f"groups: none. Values of {COLUMN!r} of the files stand in several sets, as of no deal by groups")
        return options
    say(f"groups: those that the files have ({COLUMN}), so groups are taken whole; --groups names others")
    return replace(options, groups=COLUMN)


def with_groups_of_sets(options: Options, sets: NamedSets) -> Options:
    """As `with_dealt_groups`, of query set, holdout and known members; without a holdout only coins deal groups."""
    if sets.key:
        refuse_options(
            {"--groups": options.groups != COLUMN and options.groups}, "the key of a blind deal says whether any"
        )
        return replace(options, groups=COLUMN) if sets.key.groups else options
    if Role.HOLDOUT not in sets.names and not getattr(options, "coins", False):
        refuse_options({"--groups": options.groups}, "is of all records that were dealt, and there is no holdout")
        return options
    return with_dealt_groups(options, *sets.names.only(Role.QUERY, Role.HOLDOUT, Role.MEMBERS).values())


def _written_groups(data: str) -> Shaped[np.ndarray, " records"] | None:
    """As `groups_in_file`, of texts, too."""
    if not is_texts(data):
        return groups_in_file(data)
    values = read_texts(expanded(data)).column(COLUMN)
    return None if values is None else np.array(values)


def group_columns(groups: str | None) -> tuple[str, ...]:
    """The name of the column with groups, which is no input in any set."""
    return (groups,) if groups is not None and groups_file(groups) is None else ()


def read_groups(text: str, data: str, records: int, of: str) -> Shaped[np.ndarray, " records"]:
    """As `load_groups`, and the values of a key of texts."""
    if not is_texts(data) or groups_file(text) is not None:
        return load_groups(text, data, records, of)
    values = read_texts(expanded(data)).column(text)
    if values is None:
        raise InputError(f"groups {text!r}: is neither a file nor a key of the texts of the {of}.")
    return np.array(values)


def with_named_groups(sets: Sets[Examples], groups: str | None, names: Sets[str]) -> Sets[Examples]:
    """The sets, with the groups of the records of those that were dealt, if any are named."""
    if groups is None:
        return sets
    dealt_sets = sets.only(Role.QUERY, Role.HOLDOUT, Role.MEMBERS)
    if len(dealt_sets) > 1 and groups_file(groups) is not None:
        raise InputError(f"--groups {groups}: is a file, and there are several sets; name the column of their files.")
    values = number_sets(
        dealt_sets.map(lambda role, examples: read_groups(groups, names[role], len(examples), role.words))
    )
    return sets.map(lambda role, examples: replace(examples, groups=values[role]) if role in values else examples)


SHOWN = 10


def read_scores(path: Path, directions: Iterable[tuple[str, str]] = ()) -> ScoreTable:
    """The table of scores in a file, as `load_scores` reads it; says on stderr what was ignored or guessed."""
    pairs = [*directions]
    table = load_scores(path, **{way: [score for score, of in pairs if of == way] for way in ("lower", "higher")})
    for note in table.notes:
        say(f"{table.name}: {note}")
    # An index of rows without a name, as pandas writes it, is nobody's score.
    ignored = [column for column in table.ignored if column.strip().casefold() not in INDEX_NAMES]
    if ignored:
        counted = "1 column is" if len(ignored) == 1 else f"{len(ignored)} columns are"
        say(f"{table.name}: {counted} not used: {', '.join(map(repr, ignored[:SHOWN]))}")
    taken = [
        f"{way}: {', '.join(names[:SHOWN])}"
        for way, sign in (("lower", -1), ("higher", 1))
        if (names := [name for name in table.guessed if table.directions[name] == sign])
    ]
    if taken:
        say(
            f"{table.name}: by their names, scores are taken for records that were used as {'; as '.join(taken)} "
            "(--direction SCORE=lower or SCORE=higher of jaxaudit ks says otherwise)"
        )
    unknown = [name for name, direction in table.directions.items() if not direction]
    if unknown:
        say(
            f"{table.name}: it is not known whether {', '.join(unknown[:SHOWN])} is lower or higher for records that "
            "were used: no verdict rests on it; --direction SCORE=lower or SCORE=higher of jaxaudit ks says it"
        )
    return table
