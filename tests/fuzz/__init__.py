"""A seeded fuzzer of everything that reads what strangers give: damaged, hostile and merely odd files.

    cd tests
    python -m fuzz --cases 10000 --seed 7               all readers; counts by reader and outcome
    python -m fuzz --cases 500 --reader npz             one reader alone (part of a name is enough)
    python -m fuzz --seed 7 --reader npz --case 123     one case again, with what was done to its files

A case is a function of (seed, reader, index) alone: a small valid input (`sets`, `results`, `banks`, `tables`,
`language_models`) with a few changes (`cases`): to bytes, to what a format means, or to which files there are
(`damage`, `odd`). It is read in a forked process (`forks`), by a function of the package or by a whole command
(`commands`), which may use 5 s of CPU and 1 GiB. A case is good when the input was read, or refused by an `InputError`
of one short line that shows no cell of a table, and what was made of it holds nothing that it should not (`printed`);
whatever else happens is a finding: another exception, a crash, a hang, too much time or memory, a word on stdout or
stderr, foreign code imported, a file changed or left behind. `planted` does all of these, so that a test can see them
found. What a bound on a size refuses has its own test in `tests/data`. Status: 0 without findings, 1 with.
"""
