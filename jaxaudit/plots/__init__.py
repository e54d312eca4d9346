"""Draws results, given as arrays, on Matplotlib `Axes`, without pyplot or global settings."""
