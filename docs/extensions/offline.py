"""A build without a network is a build: links into other projects' pages are then text."""

import logging
from typing import Any

LOGGER = "sphinx.sphinx.ext.intersphinx"


def setup(app: Any) -> dict[str, bool]:
    logging.getLogger(LOGGER).addFilter(_as_information)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _as_information(record: logging.LogRecord) -> bool:
    """intersphinx warns of an inventory that it cannot fetch, without a type by which it could be told apart."""
    if record.levelno == logging.WARNING and "failed to reach any of the inventories" in str(record.msg):
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True
