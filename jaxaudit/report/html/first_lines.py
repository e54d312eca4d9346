"""The lines by which a page of this package is recognised. Imports nothing, so that checks need no JAX."""

FIRST_LINES = "<!DOCTYPE html>\n<!-- a report of jaxaudit -->\n"
"""The first lines of a report; only such a file may be overwritten."""
