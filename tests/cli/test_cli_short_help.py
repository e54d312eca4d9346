"""The short help, `-h`, of every command: one screen."""

from pathlib import Path

import pytest
from support.cli_runs import process

from jaxaudit.cli.app import _command, _every

COMMANDS = [name for name, _ in _every(_command())]


@pytest.mark.outer
@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_is_one_screen(name: str, tmp_path: Path):
    done = process(*name.split(), "-h", cwd=tmp_path, COLUMNS="80")
    lines = done.out.splitlines()
    assert done.code == 0, done.err
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith(" ...")]
    assert lines[-1] == f"{' '.join(['jaxaudit', *name.split()])} --help has everything."
