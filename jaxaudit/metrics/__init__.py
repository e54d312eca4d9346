"""The papers' numbers, from arrays of model outputs; `__init__.pyi` lists the names, imported when first used.

| question | names |
|---|---|
| has a model forgotten a data set? | `rho`, `verdict`, `ema`; `holdout_test` and `shadow_test` with `used_share` |
| how small a used share would a test notice? | `separation`, `min_detectable_fraction`, `records_needed` |
| may a classifier be published? | `pdtp`, `seed_floor`, `publishable`, the bounds of `stability` |
| how well does an attack tell members? | `attack_metrics`, `membership_scores`, `correlation` |
| what do weights know about records? | `measure_efficacy`, `efficacy` |
| can these outputs be judged at all? | `Check` and the checks, `alike` |

A function that is called as its module (`ema`, `pdtp`, `efficacy`) is the attribute; the module is imported from in
full: `from jaxaudit.metrics.pdtp import BINS`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
