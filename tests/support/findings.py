"""The checks of a finding by their names."""

from jaxaudit.audits import Checked, Finding


def check_of(finding: Finding, name: str) -> Checked:
    """The check of this name, of which there is one."""
    (found,) = [each for each in finding.checks if each.name == name]
    return found


def state(finding: Finding, name: str) -> str:
    return check_of(finding, name).state
