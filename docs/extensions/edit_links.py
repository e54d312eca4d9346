"""A link on each page that edits its source, where the package says in which repository that is."""

from collections.abc import Mapping
from typing import Any

BRANCH = "main"
COPIES = "repository/"
"""Pages of the site that are copies of files of the repository: see `repository_pages.py`."""
FOLDER = f"{{{{ '' if file_name.startswith('{COPIES}') else 'docs/' }}}}"


def edit_links(urls: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`html_theme_options` and `html_context` for the `[project.urls]` of `pyproject.toml`.

    `Repository = "https://github.com/OWNER/NAME"` there turns the links on; without it there are none.
    """
    repository = urls.get("Repository", "").rstrip("/")
    if not repository:
        return {}, {}
    page = f"{FOLDER}{{{{ file_name | replace('{COPIES}', '') }}}}"
    options = {"repository_url": repository, "use_edit_page_button": True, "use_repository_button": True}
    return options, {
        "edit_page_provider_name": "GitHub",
        "edit_page_url_template": f"{repository}/edit/{BRANCH}/{page}",
    }
