"""The shapes of arrays that metrics take and return, by name: n records, models by row, kinds of scores by column.

Within one call, n is the same for all of them.
"""

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from jaxaudit.randomness import OneKey as OneKey

Integers = Int[np.ndarray, " n"]
Numbers = Float[np.ndarray, " n"]
"""One for each record."""
Mask = Bool[np.ndarray, " n"]
Groups = Shaped[np.ndarray, " n"]
"""What names the group of each record."""
Indices = Int[np.ndarray, " some"]
"""Of some records."""
Scores = Float[np.ndarray, "models n"]
Members = Bool[np.ndarray, "models n"]
Kinds = Float[np.ndarray, "n kinds"]
PerModel = Float[np.ndarray, " models"]
ModelMask = Bool[np.ndarray, " models"]
ModelNumbers = Int[np.ndarray, " models"]
"""A whole number for each model: its row, or how many records it learns."""
Deals = Float[np.ndarray, "deals kinds"]
"""Of deals of the records into two sets, the one that was made and others."""
# Of the device or the host.
AnyNumbers = Float[Array | np.ndarray, " n"]
AnyOthers = Float[Array | np.ndarray, " m"]
"""Of the records of another set."""
AnyIntegers = Int[Array | np.ndarray, " n"]
AnyScores = Float[Array | np.ndarray, "models n"]
AnyMembers = Bool[Array | np.ndarray, "models n"]


def units_of_records(groups: Shaped[Array | np.ndarray, " n"] | None, records: int) -> Shaped[np.ndarray, " n"]:
    """What each record was dealt with: its group, or where records were dealt one by one its number."""
    return np.arange(records) if groups is None else np.asarray(groups)
