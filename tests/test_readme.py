"""README.md and docs/command_line.md say what the program does."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import readme_sections as sections


@pytest.mark.parametrize("command", [*sections.COMMANDS, *sections.OTHERS])
def test_help_is_up_to_date(command):
    shown = sections.section(sections.COMMAND_LINE.read_text(encoding="utf-8"), f"{command} help")
    assert shown == sections.help_section(command), "run python tests/readme_sections.py"


def test_headline_is_up_to_date():
    shown = sections.section(sections.README.read_text(encoding="utf-8"), "headline")
    assert shown == sections.headline_section(), "run python tests/readme_sections.py"


def test_error_rates_are_up_to_date():
    """And not spoken of before they were measured."""
    text = sections.README.read_text(encoding="utf-8")
    measured = bool(sections.error_rate_results())
    assert (sections.ERROR_HEADING in text) == measured, "run python tests/readme_sections.py"
    shown = sections.section(text, "error rates") if measured else ""
    assert shown == sections.error_rates_section(), "run python tests/readme_sections.py"


def test_error_rates_are_written_from_the_results(tmp_path, monkeypatch):
    rate = {"share": 0.025, "low": 0.01, "high": 0.05, "count": 5, "of": 200}
    overall = dict.fromkeys(sections.ERROR_ROWS, rate) | {"inconclusive": {**rate, "share": None}}
    rates = {"targets": 1200, "worlds": 24, "overall": dict.fromkeys(sections.ERROR_METHODS, overall)}
    results = tmp_path / "experiments" / "results"
    results.mkdir(parents=True)
    (results / "error_rates-cpu.json").write_text(json.dumps({"rates": rates, "sentences": ["Asked: met."]}))
    monkeypatch.setattr(sections, "ROOT", tmp_path)
    lines = sections.error_rates_section().splitlines()
    assert lines[0].startswith("1,200 targets of known truth in 24 worlds")
    assert (
        "| never used, called `not forgotten`: wrong |" + " 2.5% (1.0%-5.0%) |" * len(sections.ERROR_METHODS) in lines
    )
    assert "| all targets, called `inconclusive` |" + " - |" * len(sections.ERROR_METHODS) in lines
    assert "- Asked: met." in lines
    assert lines[-1].endswith("[the page](experiments/results/error_rates-cpu.md).")


@pytest.mark.slow
def test_python_example_runs(tmp_path):
    """The six lines, on small generated files of the names they use and for a few steps."""
    code = re.search(r"```python\n(.*?)```", sections.README.read_text(encoding="utf-8"), re.DOTALL)
    assert code
    assert sum(bool(line) for line in code[1].splitlines()) == 6
    rng = np.random.default_rng(3)
    labels = np.arange(60) % 5
    names = np.array([f"class {k}" for k in range(5)])

    def images(low: int) -> np.ndarray:
        noise = rng.integers(low, low + 60, (60, 28, 28))
        noise[np.arange(60), :, labels * 5] += 120
        return noise.astype(np.uint8)

    np.savez(tmp_path / "hospital_b.npz", images=images(0), labels=labels, class_names=names)
    from PIL import Image

    for index, image in enumerate(images(40)):
        folder = tmp_path / "hospital_a" / names[labels[index]]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{index}.png")
    outputs = rng.dirichlet(np.ones(5), 60)
    np.savetxt(tmp_path / "outputs.csv", outputs, delimiter=",")
    short = code[1].replace("epochs=15", "epochs=1").replace("LiuCNN", "MLP")
    short = short.replace("without_query=39", "without_query=19")
    assert short != code[1]
    shown = subprocess.run([sys.executable, "-c", short], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("inconclusive")


def test_the_source_distribution_holds_what_the_test_command_needs():
    lines = [line.split() for line in (sections.ROOT / "MANIFEST.in").read_text().splitlines()]
    held = {name for word, *names in lines if word in ("include", "graft") for name in names}
    command = re.search(r"<!-- test command -->.*?```$", sections.README.read_text(), re.DOTALL | re.MULTILINE)
    assert command is not None
    needed = set(re.findall(r"--constraint (\S+)", command[0])) | {"tests", "docs", "bench", "experiments"}
    assert needed <= held
    assert all((sections.ROOT / name).exists() for name in held)
