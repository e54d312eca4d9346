"""Readers of kinds of files, a module each; `registry.py` has a row a format of records.

All input is untrusted (`SECURITY.md`). What another party gives (outputs, banks, runs, weights) is bounded before
anything is allocated: by the file's length, by what the shape at hand can need, and by a part of the machine's (or the
container's) memory. The user's own sets are read by the library of their format, within a bound on what they state or
unpack to. A format has one door, such as `arrays.py` of NumPy's. Only regular files are opened, and never waited for
(`data/paths.py`). A third party's parser runs within `parsing.py`. No pickle is ever loaded. `tests/fuzz` holds all
readers to this.
"""
