"""Tables of scores: numbers that models gave to records, a row a record."""
