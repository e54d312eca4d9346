"""Printed digits: the same ten classes as handwritten digits, from another source."""

from jaxaudit.data.examples import Examples

SEED = 20201004


def printed_digits(records: int = 6000, size: int = 28, seed: int = SEED) -> Examples:
    """Digits rendered from the TrueType fonts that matplotlib ships: `uint8[records, size, size]`, white on black."""
    raise NotImplementedError
