"""One HTML file for people: runs in, a page out."""
