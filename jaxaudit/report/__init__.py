"""Results as text, pages and JSON."""
