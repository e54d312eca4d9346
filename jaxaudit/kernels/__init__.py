"""Pure array functions, batched and exact: the numbers every audit is made of."""

from jaxaudit.kernels.kolmogorov_smirnov import KSGap, ks_distance, ks_gap
from jaxaudit.kernels.ks_bootstrap import bootstrap_ks, bootstrap_ks_paired

__all__ = ["KSGap", "bootstrap_ks", "bootstrap_ks_paired", "ks_distance", "ks_gap"]
