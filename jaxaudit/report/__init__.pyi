"""The names of `report`: see `jaxaudit/__init__.pyi`."""

from .html import report_html as report_html
from .kinds import ARRAYS as ARRAYS
from .kinds import Provenance as Provenance
from .kinds import Run as Run
from .kinds import part_of as part_of
from .kinds import recorded as recorded
from .kinds import run_kind as run_kind
from .kinds import schema_of as schema_of
from .kinds import to_json as to_json
from .sources import GLOSSARY as GLOSSARY
from .sources import as_bibtex as as_bibtex
from .sources import bibliography as bibliography
from .sources import cited as cited
from .sources import papers as papers
from .terminal import as_terminal as as_terminal
