"""The papers' numbers, from arrays of model outputs."""
