"""Readers of kinds of files, a module each; `registry.py` has a row a format of records.

Untrusted input. Bounds follow from who hands a file over (`SECURITY.md`). What another party gives (outputs, banks,
runs, weights) is bounded before anything is allocated: by the file's length, by what the shape at hand can need, and by
a part of the machine's (or the container's) memory. The user's own sets are read by the library of their format, within
a bound on what they state or unpack to. A format has one door: NumPy's is `data/formats/arrays.py`, CSV's
`text_table.py`, that of Parquet tables `parquet_file.py`; what a table means is decided behind it. Only regular files
are opened, and never waited for (`data/paths.py`). A third party's parser runs within `data/formats/parsing.py`: it is
quiet, and whatever it raises is one `InputError`, which never quotes a record. No pickle is ever loaded. The classes
that a prepared TFDS set names are compared with TFDS's own names and never imported: TFDS gets features of ours in
place of those on disk. A table's columns are bounded by its first line. What is written is written through no link,
under a name that nobody can foresee, and moved to its place when it is whole. A run directory is its owner's alone
(0700, its files 0600); what is handed on names files relative to where the command ran. `tests/fuzz` holds all
readers to this.
"""
