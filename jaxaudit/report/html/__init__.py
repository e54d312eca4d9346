"""One HTML file for people: runs in, a page out. Imports nothing, so that a page is recognised without JAX."""

FIRST_LINES = "<!DOCTYPE html>\n<!-- a report of jaxaudit -->\n"
"""The first lines of a report; only such a file may be overwritten."""
