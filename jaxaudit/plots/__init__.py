"""Results as Matplotlib figures: arrays in, marks on an `Axes` out. No pyplot, no global settings."""
