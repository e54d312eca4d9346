"""The papers' metrics and tests, computed from arrays of model outputs.

| question | names |
|---|---|
| has a model forgotten a data set? | `rho`, `verdict`; `holdout_test` and `shadow_test` with `used_share` |
| how much memory of a data set does a deletion leave? | `deletion_test` |
| how small a used fraction would a test detect? | `separation`, `min_detectable_fraction`, `records_needed` |
| how are records split so that use can be tested later? | `deal` |
| does a classifier expose single records? | `pdtp`, `seed_floor` |
| how well does an attack detect members? | `attack_metrics`, `membership_scores`, `correlation` |
| are unlearned models distinguishable from retrained ones? | `challenge_score`, `u_lira`, `u_lira_rate`, `place` |
| what do weights expose about records? | `efficacy_by_layer`, `efficacy` |
| do the assumptions of a test hold for these outputs? | `Check` and the checks, `alike` |

If a function has the name of its module (`pdtp`, `efficacy`), the attribute is the function: import from such a module
by its full name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
