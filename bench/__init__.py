"""Measurements: one module a claim of speed. `python -m bench.ks` prints a table and writes `bench/results/`."""
