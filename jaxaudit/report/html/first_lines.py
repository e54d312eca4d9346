"""How a page that this package wrote is recognised. Imports nothing, so that a file can be asked before JAX starts."""

FIRST_LINES = "<!DOCTYPE html>\n<!-- a report of jaxaudit -->\n"
"""The first lines of a report; only such a file may be overwritten."""
