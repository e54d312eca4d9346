"""The parts of README.md and of the site's pages that programs write: `python tests/readme_sections.py` does.

Or only some: `python tests/readme_sections.py "ks session" "error rates"`.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))

from experiments import (  # noqa: E402
    error_rates,
    holdout_rates,
    memory_rates,
    score_rates,
    score_rates_adapters,
)
from experiments.rates import VERDICTS  # noqa: E402

README = ROOT / "README.md"
DOCS = ROOT / "docs"
COMMAND_LINE = DOCS / "command_line"
"""A page a command, with its help."""
START = DOCS / "start.md"
DELETION = DOCS / "how_to" / "a_worked_deletion_case.md"
REFERENCES = DOCS / "references.md"
PAPERS = ROOT / "jaxaudit" / "report" / "papers.bib"
LETTERS = {r"{\`e}": "è", r"{\'e}": "é", r"{\"a}": "ä", r"{\"O}": "Ö"}
"""As LaTeX writes them, and as text."""
ERROR_RATES = DOCS / "explanation" / "error_rates.md"
LOGS_PAGE = DOCS / "how_to" / "score_open_unlearning_logs.md"
SESSIONS = {
    "ks": README,
    "power": DOCS / "how_to" / "how_many_records.md",
    "efficacy": DOCS / "tutorials" / "how_much_is_left.md",
    "unlearn": DOCS / "how_to" / "choose_an_unlearning_method.md",
}
"""The page that shows what a command prints."""
COMPARISON = DOCS / "explanation" / "comparison.md"
SCORE = DOCS / "how_to" / "score_my_method.md"
MEMBERS_DEAL = "deal digits --members-share 0.4 --holdout-share 0.3 --seed 1 --out deal"
MEMBERS_COMMAND = ("ks --deal deal --target outputs.npz",)
COMMANDS = ("ks", "power", "pdtp", "attack", "efficacy", "unlearn")
"""The commands that audit."""
OTHERS = (
    "deal",
    "shadows plan",
    "shadows train",
    "shadows add",
    "shadows import",
    "shadows show",
    "scores open-unlearning",
    "scores lm-eval",
    "scores lm",
    "report",
    "cite",
    "doctor",
)
"""The commands that do not audit."""


def page_of(command: str) -> Path:
    """The page of a command; commands of one first word share one."""
    return COMMAND_LINE / f"{command.partition(' ')[0]}.md"


def commands_section() -> str:
    """A line a command: the first words of its help."""
    lines = []
    for command in (*COMMANDS, *OTHERS):
        about, *_ = _declared(command).help.split("\n\n")
        anchor = f"#jaxaudit-{command.replace(' ', '-')}" if " " in command else ""
        lines.append(f"- [`jaxaudit {command}`]({page_of(command).name}{anchor}): {' '.join(_prose(about).split())}")
    return "\n".join(lines)


EVERYWHERE = 4
"""An option that so many commands have, in the same words, stands once for all of them."""


def help_section(command: str) -> str:
    """The help of a command as Markdown: a section each option, with an anchor, in the groups of `--help`.

    An option that an earlier command has in the same words, or several commands have, stands there.
    """
    declared = _declared(command)
    level = "###" if " " in command else "##"
    context = declared.make_context(f"jaxaudit {command}", [], resilient_parsing=True)
    about, _, examples = declared.help.partition("Examples:")
    parts = [f"    {declared.get_usage(context).removeprefix('Usage: ')}", *_paragraphs(about)]
    if examples:
        parts += [f"{level} Examples", *(f"- {each}" for each in _paragraphs(examples))]
    places: list[str] = []
    groups: dict[str, list[tuple[str, str]]] = {}
    for group, record in _records(command):
        if place := _elsewhere(command, record):
            places.append(f"[`{_title(record[0])}`]({place})")
        else:
            groups.setdefault(group, []).append(record)
    for group, records in groups.items():
        # The words keep the group's anchor apart from that of an option: `--data` is in the group "Data".
        parts.append(f"{level} Options: {group.lower()}" if group else f"{level} Options")
        for record in records:
            parts += _option(*record, f"{level}#")
    parts.append(f"As in other commands: {', '.join(places)}.")
    return "\n\n".join(_wrapped(part) for part in parts if part)


def shared_section() -> str:
    """The options that several commands have in the same words."""
    return "\n\n".join(_wrapped(part) for record in _shared() for part in _option(*record, "###"))


@cache
def _records(command: str) -> list[tuple[str, tuple[str, str]]]:
    """The group of each option, and its names and text."""
    declared = _declared(command)
    context = declared.make_context(f"jaxaudit {command}", [], resilient_parsing=True)
    params = declared.get_params(context)
    return [(getattr(each, "rich_help_panel", None) or "", each.get_help_record(context)) for each in params]


def _elsewhere(command: str, record: tuple[str, str]) -> str | None:
    """Where an option stands that several commands have, or an earlier one, in the same words."""
    if record in _shared():
        return f"index.md#{_anchor(record)}"
    earlier = takewhile(lambda each: each != command, (*COMMANDS, *OTHERS))
    first = next((each for each in earlier if record in [option for _, option in _records(each)]), None)
    if first is None or page_of(first) == page_of(command):
        return first and f"#jaxaudit-{first.replace(' ', '-')}"
    return f"{page_of(first).name}#{_anchor(record)}"


@cache
def _shared() -> dict[tuple[str, str], int]:
    counts = Counter(record for command in (*COMMANDS, *OTHERS) for _, record in _records(command))
    return {record: count for record, count in counts.items() if count >= EVERYWHERE}


def _title(names: str) -> str:
    return re.sub("^-., ", "", re.sub(" <.*>", "", names)).partition(" ")[0].partition(",")[0]


def _anchor(record: tuple[str, str]) -> str:
    return _title(record[0]).lstrip("-").lower()


def _option(names: str, text: str, level: str) -> list[str]:
    names, text = re.sub(" <.*>", "", names), " ".join(text.split())
    title = _title(names)
    value = names.removeprefix(title).lstrip(" ,")
    return [f"{level} `{title}`", f"`{value}`: {_prose(text)}" if value else _prose(text)]


def _declared(command: str) -> Any:
    """The command as Typer has it: its help, and its options with their defaults."""
    from jaxaudit.cli.app import _command

    found: Any = _command()
    for word in command.split():
        found = found.commands[word]
    return found


def _paragraphs(text: str) -> list[str]:
    return [_prose(each) for each in re.split(r"\n\s*\n", text.strip()) if each]


def _wrapped(part: str) -> str:
    if part.startswith(("#", "    ")):
        return part
    after = "  " if part.startswith("- ") else ""
    return textwrap.fill(part, 120, subsequent_indent=after, break_long_words=False, break_on_hyphens=False)


def _prose(text: str) -> str:
    """Help as Markdown: what stands outside of code is shown as it is, and flags in it are code."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        words = re.sub(r"([\\\\*_<>\[\]{}$|])", r"\\\1", parts[place])
        parts[place] = re.sub(r"(?<![\w-])--[a-z][a-z-]*[a-z]", r"`\g<0>`", words)
    return "`".join(parts)


def session_section(*words: str) -> str:
    """What `jaxaudit WORDS` prints, on stdout, on this machine."""
    return f"```text\n$ jaxaudit {' '.join(words)}\n{_run(list(words))}\n```"


def patients_section() -> str:
    """What the blind test of a deletion prints, of two companies' answers."""
    with tempfile.TemporaryDirectory() as folder:
        printed = _python([str(ROOT / "examples" / "deletion_case.py")], Path(folder))
    # The commitment follows from a salt, which is new in each deal.
    return f"```text\n{re.sub('[0-9a-f]{64}', 'the one of letter 1', printed)}\n```"


def _after(page: Path, before: Sequence[str], outputs: str, command: Sequence[str]) -> str:
    """What a command prints after others, and the page's program that makes the outputs."""
    with tempfile.TemporaryDirectory() as folder:
        for each in before:
            _run(each.split(), Path(folder))
        _program(page, outputs, folder)
        shown = _run(" ".join(command).split(), Path(folder))
    return f"```text\n$ jaxaudit {f' {chr(92)}{chr(10)}    '.join(command)}\n{shown}\n```"


CHATS = DOCS / "tutorials" / "language_model.md"
AUTHORS_COMMAND = (
    "deal chat.jsonl --by author --members-share 0.4 --holdout-share 0.3",
    "--seed 7 --out authors",
)
SCORE_COMMAND = (
    "unlearn --outputs tuned=tuned.npz --outputs retrained=retrained.npz",
    "--outputs original=original.npz --labels labels.npy",
)


def score_section() -> str:
    """What the example that scores an unlearning method prints, and the command on the files that it saves."""
    with tempfile.TemporaryDirectory() as folder:
        made = _python([str(ROOT / "examples" / "score_my_method.py")], Path(folder))
        shown = _run(" ".join(SCORE_COMMAND).split(), Path(folder))
    command = f" {chr(92)}{chr(10)}    ".join(SCORE_COMMAND)
    return f"```text\n$ python score_my_method.py\n{made}\n$ jaxaudit {command}\n{shown}\n```"


PUBLISH = DOCS / "how_to" / "publish.md"
FOREST = (
    "shadows train --query patients.csv --label outcome --groups patient --coins --models 32",
    "--model sklearn.ensemble:RandomForestClassifier --recipe n_estimators=100",
)
ATTACKED = {
    "publish": (("--seed 7 --out bank",), "bank", None),
    "smaller": (
        ("--recipe min_samples_leaf=30 --seed 7 --out small",),
        "small",
        9,
    ),
}
"""The sessions of the page: what else the bank is made with, its name, and how many lines of the answer are shown."""


def publish_section(name: str) -> str:
    """What training a bank and attacking it print, or the first lines of the answer."""
    words, bank, shown = ATTACKED[name]
    train, attack = (*FOREST, *words), f"attack --shadows {bank}"
    with tempfile.TemporaryDirectory() as folder:
        _program(PUBLISH, "publish files", folder)
        trained = _run(" ".join(train).split(), Path(folder))
        answer = _run(attack.split(), Path(folder)).splitlines()[:shown]
    head = f" | head -{shown}" if shown else ""
    lines = [f"$ jaxaudit {f' {chr(92)}{chr(10)}    '.join(train)}", trained, f"$ jaxaudit {attack}{head}", *answer]
    return "\n".join(("```text", *lines, "```"))


LOGS = {"npo": (1, 0.05), "retain_1": (2, 0.0), "retain_2": (3, 0.0), "full": (4, 0.4)}
"""Made-up evaluation logs: the seed of each, and how much lower its losses of the forget set are."""
LOGS_COMMANDS = (
    (
        "scores open-unlearning npo.json",
        "--unused retain_1.json --unused retain_2.json --used full.json",
        "--records-per-group 20 --out scores.csv",
    ),
    ("ks --scores scores.csv --question left",),
)


def logs_section() -> str:
    """What is printed of logs of open-unlearning, of 200 questions about 10 authors."""
    from support.evaluation_logs import tofu_log

    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (seed, used) in LOGS.items():
            log = tofu_log(seed, used, 200, ("min_k", "loss"))
            (Path(folder) / f"{name}.json").write_text(json.dumps(log), encoding="utf-8")
        for command in LOGS_COMMANDS:
            shown = _run(" ".join(command).split(), Path(folder))
            lines += [f"$ jaxaudit {f' {chr(92)}{chr(10)}    '.join(command)}", shown]
    return "\n".join(("```text", *lines, "```"))


def _program(page: Path, name: str, folder: str) -> None:
    code = section(page.read_text(encoding="utf-8"), name).removeprefix("```python\n").removesuffix("```")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder)


def references_section() -> str:
    """Every paper of `papers.bib`, by parts, each with the label that docstrings and pages link to."""
    text = PAPERS.read_text(encoding="utf-8")
    for written, letter in LETTERS.items():
        text = text.replace(written, letter)
    parts: dict[str, list[str]] = {}
    labels: list[str] = []
    for entry in re.findall(r"^@.*?^\}$", text, re.MULTILINE | re.DOTALL):
        found = re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE)
        paper = {name: re.sub("[{}]", "", value) for name, value in found}
        label = f"{re.split('[ ,]', paper['cited'])[0].lower()}{paper['year']}"
        # As in 2024b: docstrings link to the first paper of a name and year alone.
        labels.append(label if label not in labels else f"{label}b")
        parts.setdefault(paper["part"], []).append(f"({labels[-1]})=\n{_reference(paper)}")
    return "\n\n".join(f"## {part}\n\n" + "\n\n".join(papers) for part, papers in parts.items())


def _reference(paper: dict[str, str]) -> str:
    authors = ", ".join(" ".join(reversed(each.split(", "))) for each in paper["author"].split(" and "))
    # A volume of a journal, and its pages.
    place = " ".join(paper[name] for name in ("booktitle", "journal", "volume") if name in paper)
    pages = f", {paper['pages'].replace('--', '-')}" if "pages" in paper else ""
    links = [f"[doi:{paper['doi']}](https://doi.org/{paper['doi']})"] if "doi" in paper else []
    if "eprint" in paper:
        links = [f"[arXiv {paper['eprint']}](https://arxiv.org/abs/{paper['eprint']})"]
    links = links or ([f"<{paper['url']}>"] if "url" in paper else [])
    said = [f"{authors} ({paper['year']}).", f"*{paper['title']}{'' if paper['title'].endswith('?') else '.'}*"]
    said += [f"{place}{pages}."] if place else []
    said += [f"{', '.join(links)}."] if links else []
    return "\n".join([*said, f"[{paper['used']}]"])


TOOLS = {
    "LeakPro": "LeakPro",
    "SACRO-ML": "SACRO-ML",
    "Privacy Meter": "Privacy Meter",
    "tensorflow/privacy": "TensorFlow Privacy",
    "art.metrics": "ART",
    "MembershipInferenceBlackBox": "ART",
    "CanaryScoreAuditor": "jax_privacy",
    "unlearning_evaluation": "unlearning_evaluation",
    "Deep Unlearn": "Deep Unlearn",
}
"""Other tools for audits, by words of what was run of them."""


def crosschecks_section() -> str:
    """The largest differences from other tools for audits, from the committed results."""
    head = ["| tool | what was run of it | `jaxaudit` | largest difference | allowed |", "|---|---|---|---|---|"]
    rows = set()
    for path in sorted((ROOT / "experiments" / "crosscheck" / "results").glob("*.json")):
        for check in json.loads(path.read_text(encoding="utf-8")).get("checks", ()):
            tool = next((TOOLS[word] for word in TOOLS if word in check["theirs"]), None)
            if tool:
                run = check["theirs"].removeprefix(f"{tool} ").removeprefix("tensorflow/privacy ")
                reached = "" if check["holds"] else ", **not reached**"
                differ = f"{check['difference']:.1e} | {check['tolerance']:.1e}{reached}"
                rows.add(f"| {tool} | {run} | {check['ours'].rpartition('.')[2]} | {differ} |")
    return "\n".join([*head, *sorted(rows)])


IN_SHORT = {way: given for way, given in memory_rates.WAYS.items() if way != "members, models"}
DELETED, KEPT = "0.0", {"1.0": "all", "0.5": "half", "0.25": "exactly a quarter"}
"""What was used, in the two tables of README."""


def results_of(experiment: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The committed results of an experiment, each with the way to its page from the pages of the site."""
    for path in sorted((ROOT / "experiments" / "results").glob(f"{experiment}-*.json")):
        page = f"../../{path.with_suffix('.md').relative_to(ROOT).as_posix()}"
        yield json.loads(path.read_text(encoding="utf-8")), page


ASKED = (
    "never used: accused, wrong",
    "never used: cleared, right",
    "a quarter used: cleared, 5% allowed",
    "half used: caught",
    "all used: caught",
)
"""The columns of the one table of errors: what targets used, and what was said of them."""

SCORES_GIVEN = {
    "holdout": "a language model, and a holdout",
    "members": "a language model, a holdout and known members",
    "known 8": "a language model, a holdout, eight models of known truth of each kind",
    "log": "a language model and a holdout whose groups are not stated",
}
ADAPTERS_GIVEN = {
    "all weights, known 1": "an adapter, a holdout, one model of known truth of each kind, of another recipe",
    "all weights, known 8": "the same, eight models of each kind",
    "all weights, alone 8": "the same, without a holdout",
}
"""By the names of their ways."""


def errors_section() -> str:
    """How often verdicts were wrong and right, a line for each thing that a test can be given."""
    lines: list[tuple[str, str, Sequence[dict[str, Any] | None]]] = []
    for result, page in results_of("memory_rates"):
        large = result["rates"]["verdicts"]["1,000 or more"]
        lines += [(memory_rates.WAYS[way], page, _of_verdicts(large[way])) for way in memory_rates.WAYS]
    for result, page in results_of("holdout_rates"):
        lines.append((holdout_rates.GIVEN, page, _of_verdicts(result["rates"]["verdicts"])))
    for result, page in results_of("deletion_rates"):
        lines.append(("outputs before and after a deletion", page, _of_verdicts(result["rates"]["all"])))
    names = ("false alarms", "forgotten", "at stated", "half found", "found")
    for experiment, layout, ways in (
        ("score_rates", score_rates.LAYOUT, SCORES_GIVEN),
        ("score_rates_adapters", score_rates_adapters.LAYOUT, ADAPTERS_GIVEN),
    ):
        for result, page in results_of(experiment):
            cells = result["rates"]["all worlds"]
            for way, given in ways.items():
                found = [cells[way][name] if layout.has(way, name) else None for name in names]
                lines.append((f"scores of {given}", page, found))
    for result, page in results_of("error_rates"):
        cells = result["rates"]["overall"]
        for method in ("shadow", "rho"):
            found = [
                cells[method].get(name)
                for name in ("false alarms", "forgotten, never used", "", "", "found, all used, large")
            ]
            lines.append((error_rates.METHODS[method], page, found))
    head = [f"| given | {' | '.join(ASKED)} |", "|---" * (1 + len(ASKED)) + "|"]
    return "\n".join(
        [
            *head,
            *(
                f"| [{given}]({page}) | {' | '.join('-' if cell is None else _rate(cell) for cell in found)} |"
                for given, page, found in lines
            ),
        ]
    )


def _of_verdicts(by_use: dict[str, Any]) -> list[dict[str, Any]]:
    none, quarter, half, whole = (by_use[used] for used in ("0.0", "0.25", "0.5", "1.0"))
    caught = "not forgotten"
    return [none[caught], none["forgotten"], quarter["forgotten"], half[caught], whole[caught]]


def short_error_rates_section() -> str:
    """What verdicts targets got that were deleted, and that were kept, without intervals."""
    lines = []
    for result, _ in results_of("memory_rates"):
        rates = result["rates"]
        large = rates["verdicts"]["1,000 or more"]
        targets = large["members"][DELETED]["forgotten"]["of"]
        given_ways = dict(IN_SHORT)
        for alone, _ in results_of("holdout_rates"):
            large = {**large, holdout_rates.WAY: alone["rates"]["verdicts"]}
            others = large[holdout_rates.WAY][DELETED]["forgotten"]["of"]
            given_ways[holdout_rates.WAY] = f"{holdout_rates.GIVEN} ({others:,} other targets a share)"
        lines += [
            f"If they **deleted** the records, so that none was used ({targets:,} targets, 1,000 records or more):",
            "",
            f"| you can give | {' | '.join(('accused: wrong', 'cleared: right', '`inconclusive`'))} |",
            "|---|---|---|---|",
            *(
                f"| {given} | {' | '.join(_percent(large[way][DELETED][name]) for name in VERDICTS)} |"
                for way, given in given_ways.items()
            ),
            "",
            "If they **kept** them (caught: right; cleared: wrong; of as many targets for each share):",
            "",
            f"| you can give | {' | '.join(f'{share} used' for share in KEPT.values())} |",
            "|---" * (1 + len(KEPT)) + "|",
            *(
                f"| {given} | "
                + " | ".join(
                    f"{_percent(cell['not forgotten'])} caught, {_percent(cell['forgotten'])} cleared"
                    for cell in (large[way][used] for used in KEPT)
                )
                + " |"
                for way, given in given_ways.items()
            ),
            "",
            "A deal keeps wrong accusations at 5% in the long run (here "
            f"{_rate(large['members'][DELETED]['not forgotten'])}, with its 95% interval). `forgotten` promises that "
            "at most 25% was used, so of exactly a quarter up to 5% may be cleared. "
            f"{_worst_in_short(rates['by recipe'])}",
        ]
    for result, _ in results_of("deletion_rates"):
        rates = result["rates"]
        none, whole = rates["all"]["0.0"], rates["all"]["1.0"]
        lines[-1] += (
            f" With nothing but outputs from before and after a deletion ({rates['targets']:,} other targets, "
            "without the check whether a rule made them): none "
            f"used, {_percent(none['not forgotten'])} accused and {_percent(none['forgotten'])} cleared; all used, "
            f"{_percent(whole['not forgotten'])} caught and {_percent(whole['forgotten'])} cleared."
        )
    return "\n".join(lines)


def _percent(found: dict[str, Any]) -> str:
    return "-" if found["share"] is None else f"{found['share']:.1%}"


def _worst_in_short(by_recipe: dict[str, Any]) -> str:
    """The recipe of which use of all is missed most often, by known members."""
    missed = memory_rates.LAYOUT.worst(by_recipe, "members", "found")
    assert missed is not None
    return (
        f"Models of the recipe that remembers least (`{missed[0]}`, a small network trained on shifted images for few "
        f"epochs) are caught in {missed[1]['share']:.0%} of cases, although they used everything."
    )


def _rate(found: dict[str, Any]) -> str:
    if found["share"] is None:
        return "-"
    return f"{found['share']:.1%} ({found['low']:.1%}-{found['high']:.1%})"


def _run(arguments: Sequence[str], folder: Path = ROOT) -> str:
    """What `jaxaudit` prints."""
    return _python(["-m", "jaxaudit", *arguments], folder)


def _python(words: Sequence[str], folder: Path = ROOT) -> str:
    environment = {**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    for name in ("JAXAUDIT_DATA", "JAX_DISABLE_MOST_OPTIMIZATIONS"):
        environment.pop(name, None)
    shown = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True, env=environment, cwd=folder
    )
    return "\n".join(line.rstrip() for line in shown.stdout.strip("\n").splitlines())


def section(text: str, name: str) -> str:
    """What stands between the markers `<!-- name -->` and `<!-- /name -->`."""
    found = re.search(f"<!-- {name} -->\n(.*?)\n?<!-- /{name} -->", text, re.DOTALL)
    assert found, f"there is no section {name}"
    return found[1]


SESSION_SECTIONS: dict[tuple[Path, str], Callable[[], str]] = {
    **{(page, f"{command} session"): partial(session_section, command) for command, page in SESSIONS.items()},
    (START, "members session"): partial(_after, START, (MEMBERS_DEAL,), "members files", MEMBERS_COMMAND),
    (SCORE, "score session"): score_section,
    (LOGS_PAGE, "logs session"): logs_section,
    **{(PUBLISH, f"{name} session"): partial(publish_section, name) for name in ATTACKED},
    (CHATS, "authors session"): partial(_after, CHATS, (), "chat files", AUTHORS_COMMAND),
    (DELETION, "patients session"): patients_section,
}
"""What commands print, on the page that shows it."""
RESULT_SECTIONS: dict[tuple[Path, str], Callable[[], str]] = {
    (REFERENCES, "references"): references_section,
    (COMPARISON, "cross-checks"): crosschecks_section,
    (ERROR_RATES, "errors"): errors_section,
    (README, "error rates in short"): short_error_rates_section,
}
"""What follows from files of the repository."""


def main(names: list[str]) -> None:
    """Writes the sections of these names anew, or every section."""
    sections: dict[tuple[Path, str], Callable[[], str]] = {
        **{(page_of(command), f"{command} help"): partial(help_section, command) for command in (*COMMANDS, *OTHERS)},
        (COMMAND_LINE / "index.md", "commands"): commands_section,
        (COMMAND_LINE / "index.md", "shared options"): shared_section,
        **SESSION_SECTIONS,
        **RESULT_SECTIONS,
    }
    for (page, name), write in sections.items():
        if not names or name in names:
            _rewrite(page, name, write())


def _rewrite(page: Path, name: str, new: str) -> None:
    text = page.read_text(encoding="utf-8")
    old = section(text, name)
    between = f"<!-- {name} -->\n{old}\n" if old else f"<!-- {name} -->\n"
    page.write_text(text.replace(f"{between}<!-- /{name} -->", f"<!-- {name} -->\n{new}\n<!-- /{name} -->"), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
