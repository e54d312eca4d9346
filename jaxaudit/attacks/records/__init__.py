"""Per-record membership attacks with a bank of shadow models (LiRA and others): a larger score means a member.

`__init__.pyi` lists the public names. Each is imported when it is first used; this file imports nothing heavy.

An attack on records is a value in a file, too, and learns nothing that an attacker would not know. `attacks/records/`
has them: log-odds of all models, membership, and perhaps targets in, a score a record out. Without targets each model
is attacked by the others. If every record was dealt to a fixed number of models (as LiRA's and Privacy Meter's scripts
deal), the number of others with a record tells whether the model itself has it, and estimates over few models carry
that number along: areas of .53 came out of outputs without any memory. So a partner is left out for each record, too: a
model of the other kind, with which the attacked one could be exchanged. Any planned model of the other kind is as
likely the partner as any other, and one that is not finished need not be left out; to leave one out always gave areas
of .51 where 16 of 32 models were finished and .54 where 8 were. Where each record has its own coin, a partner would
itself tell, and only the model is left out (`fixed_design` tells the two apart by the rows, `left_out` chooses).
Thresholds for a model come from the non-members of all others. Leaving a model out costs no more than none: sums before
and after it, and its place in a sorted order (`in_out_statistics.py`). RMIA's records z are those that no planned model
used, where there are more of them than chance leaves out (`unused_records`): ranked among records that the target may
have used, a score depends on how many it used, so such an attack decides over no target.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

BUILT_IN: dict[str, tuple[str, ...]] = {
    "stacked": ("stacked",),
    "bavaria": ("bavaria-t",),
    "lira": ("lira", "lira-fixed", "lira-offline", "lira-offline-fixed"),
    "rmia": ("rmia", "rmia-offline", "base", "base-offline"),
    "reference": ("attack-r", "attack-p"),
    "lira_code": ("lira-code", "lira-fixed-code", "lira-offline-code", "lira-offline-fixed-code"),
}
"""The built-in attacks in order: for each file, the names of the attacks in its `ATTACKS`."""
