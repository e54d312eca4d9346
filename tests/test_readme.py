"""README.md and the pages of the site say what the program does, and a new user can do what they say."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import readme_sections as sections
from support.cli_runs import jaxaudit


@pytest.mark.parametrize("command", [*sections.COMMANDS, *sections.OTHERS])
def test_the_page_of_a_command_has_a_section_for_each_option(command: str):
    page = sections.page_of(command).read_text(encoding="utf-8")
    shown = sections.section(page, f"{command} help")
    assert shown == sections.help_section(command), "run python tests/readme_sections.py"
    assert f"    jaxaudit {command}" in shown
    # Defaults are values, and not what the source calls them.
    assert not re.search(r"default: [a-z_]+\.[A-Z_]+|python -m", shown)
    # Two sections of one name would have one anchor: `ks.md#deal` is the option `--deal` and nothing else.
    anchors = [each.lower() for each in re.findall("^##+ `?-*(.*?)`?$", shown, re.MULTILINE)]
    assert len(anchors) == len(set(anchors))
    assert "`--help`" in shown
    done = jaxaudit(*command.split(), "--help")
    assert done.code == 0
    assert f"Usage: jaxaudit {command}" in done.out


def test_the_page_of_the_command_line_names_every_command():
    index = sections.COMMAND_LINE / "index.md"
    text = index.read_text(encoding="utf-8")
    assert sections.section(text, "commands") == sections.commands_section(), "run python tests/readme_sections.py"
    assert sections.section(text, "shared options") == sections.shared_section(), "run python tests/readme_sections.py"
    pages = {page.stem for page in sections.COMMAND_LINE.glob("*.md")} - {index.stem}
    assert pages == {sections.page_of(command).stem for command in (*sections.COMMANDS, *sections.OTHERS)}
    listed = re.search(r"```\{toctree\}\n:hidden:\n(.*?)\n```", text, re.DOTALL)
    assert listed
    assert sorted(listed[1].split()) == sorted(pages)


@pytest.mark.parametrize(("page", "name"), sections.RESULT_SECTIONS, ids=lambda part: getattr(part, "stem", part))
def test_a_section_is_up_to_date(page: Path, name: str):
    shown = sections.section(page.read_text(encoding="utf-8"), name)
    assert shown == sections.RESULT_SECTIONS[page, name](), "run python tests/readme_sections.py"
    if name == "references":
        assert "\\" not in shown, "a letter is missing in LETTERS"
        labels = re.findall(r"^\(([\w-]+)\)=$", shown, re.MULTILINE)
        assert len(labels) == len(set(labels)) == sections.PAPERS.read_text(encoding="utf-8").count("\n@")


def test_the_readme_is_read_to_the_end():
    assert len(sections.README.read_text(encoding="utf-8").splitlines()) <= 140


@pytest.mark.outer
@pytest.mark.parametrize(("page", "name"), sections.SESSION_SECTIONS, ids=lambda part: getattr(part, "stem", part))
def test_session_is_what_it_prints(page: Path, name: str):
    """Word by word; of the numbers, 9 of 10 within 10% or 3 units of their last digit: processors round differently."""
    run = sections.SESSION_SECTIONS[page, name]
    shown, printed = (parts(text) for text in (sections.section(page.read_text(encoding="utf-8"), name), run()))
    assert shown.words == printed.words, "run python tests/readme_sections.py"
    apart = [pair for pair in zip(shown.numbers, printed.numbers, strict=True) if not near(*pair)]
    assert len(apart) <= len(shown.numbers) / 10, apart


class Parts(NamedTuple):
    """A session's words in their order, without drawn lines and bars, with # for each number; and its numbers."""

    words: list[str]
    numbers: list[str]


def parts(session: str) -> Parts:
    text = re.sub("[─█▏▎▍▌▋▊▉]+", " ", session)
    number = r"(?<![\w.])-?(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?"
    return Parts(re.sub(number, "#", text).split(), re.findall(number, text))


def near(shown: str, printed: str) -> bool:
    first, second = (float(number.replace(",", "")) for number in (shown, printed))
    unit = 10.0 ** -len(shown.partition("e")[0].partition(".")[2])
    return abs(first - second) <= max(0.1 * abs(first), 0 if "e" in shown else 3 * unit)


@pytest.mark.outer
def test_python_example_runs(tmp_path):
    """As it stands, on embedded data."""
    code = re.search(r"```python\n(.*?)```", sections.README.read_text(encoding="utf-8"), re.DOTALL)
    assert code
    shown = subprocess.run([sys.executable, "-c", code[1]], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("target: forgotten. No use of the query set was detected")


def test_the_source_distribution_holds_what_the_test_command_needs():
    lines = [line.split() for line in (sections.ROOT / "MANIFEST.in").read_text().splitlines()]
    held = {name for word, *names in lines if word in ("include", "graft") for name in names}
    command = re.search(r"<!-- test command -->.*?```$", sections.README.read_text(), re.DOTALL | re.MULTILINE)
    assert command is not None
    needed = set(re.findall(r"--constraint (\S+)", command[0])) | {"tests", "docs", "bench", "experiments"}
    assert needed <= held
    assert all((sections.ROOT / name).exists() for name in held)


def test_the_page_of_the_installation_names_what_the_package_asks_for():
    project = tomllib.loads((sections.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (sections.DOCS / "install.md").read_text(encoding="utf-8")
    _, _, rows = page.partition("## Extras")
    cells = [line.split("|")[1] for line in rows.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    named = re.findall("`([a-z]+)`", " ".join(cells))
    assert sorted(named) == sorted(project["optional-dependencies"])
    assert project["requires-python"] == ">=3.11"
    assert "| Python | 3.11 " in page
    assert "jax>=0.10,<0.12" in project["dependencies"]
    assert "| JAX | 0.10 and 0.11 |" in page


def test_shuffled_rows_come_back_in_the_order_of_the_sets(tmp_path, monkeypatch):
    """The programs of the page, with a company between them whose output on a record is the record."""
    page = (sections.DOCS / "how_to" / "your_data_and_model.md").read_text(encoding="utf-8")
    (tmp_path / "deal").mkdir()
    records = np.split(np.arange(60.0).reshape(30, 2), [7, 16])
    for name, each in zip(("query", "holdout", "members"), records, strict=True):
        np.savez(tmp_path / "deal" / f"{name}.npz", x=each, y=np.zeros(len(each)))

    def run(name: str) -> None:
        exec(sections.section(page, name).removeprefix("```python\n").removesuffix("```"), {})

    monkeypatch.chdir(tmp_path)
    run("shuffle")
    asked = np.load(tmp_path / "asked.npz")
    assert asked.files == ["x"]
    assert not np.array_equal(asked["x"], np.concatenate(records))
    np.savetxt(tmp_path / "outputs.csv", asked["x"], delimiter=",")
    run("split")
    for name, each in zip(("query", "holdout", "members"), records, strict=True):
        np.testing.assert_array_equal(np.load(tmp_path / "outputs.npz")[name], each)
