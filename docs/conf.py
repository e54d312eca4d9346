"""The documentation site, with `.[docs]` installed.

python -m sphinx -W --keep-going -b html docs docs/_build/html
"""

import logging
import os
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

# Notebooks call `jaxaudit` of this environment, and show what a terminal of 100 columns shows. On a busy machine the
# products of scikit-learn's small networks take ten times as long on several threads as on one.
os.environ.update(
    OMP_NUM_THREADS="1",
    OPENBLAS_NUM_THREADS="1",
    PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    PYTHONPATH=str(Path(__file__).parent.parent),
    COLUMNS="100",
    TERMINAL_WIDTH="100",
    NO_COLOR="1",
)

from edit_links import edit_links

from jaxaudit.version import __version__

project = "jaxaudit"
author = "the authors of jaxaudit"
project_copyright = f"{author}, Apache License 2.0"
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
    "docstrings",
    "repository_pages",
]
exclude_patterns = ["_build", "extensions", "**/.ipynb_checkpoints"]
nitpicky = True

html_theme = "sphinx_book_theme"
html_title = "jaxaudit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "navigation_with_keys": False,
    "footer_content_items": ["copyright.html"],
}
_pyproject = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
_options, html_context = edit_links(_pyproject["project"].get("urls", {}))
html_theme_options |= _options

# Pages of Markdown; those with a `kernelspec` are notebooks. What a notebook printed is kept until its code changes,
# whatever changed in the package: remove docs/_build to run all.
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_merge_streams = True

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_param = True
napoleon_use_ivar = True
napoleon_attr_annotations = False
napoleon_custom_sections = [("Guarantees", "notes_style"), ("Edge cases", "notes_style")]
python_maximum_signature_line_length = 88


intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "jax": ("https://docs.jax.dev/en/latest", None),
    "matplotlib": ("https://matplotlib.org/stable", None),
}
intersphinx_timeout = 10


def _as_information(record: logging.LogRecord) -> bool:
    """A build without a network is a build: links into other projects' pages are then text.

    The warning about an inventory that cannot be fetched has no type by which it could be told from others.
    """
    if record.levelno == logging.WARNING and "failed to reach any of the inventories" in str(record.msg):
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True


logging.getLogger("sphinx.sphinx.ext.intersphinx").addFilter(_as_information)
