"""A bank: shadow models that anybody trained, as a directory of plain arrays and one JSON file.

The files are listed in `docs/how_to/train_shadow_models_once.md`; `bank.json` is a `Description`.

Names are fixed, so that any script can write outputs, and none leads elsewhere. A missing file of outputs is a model
that is not trained yet; there is no other state. Outputs are checked whenever they are read, because anybody may write
there, and held against all rows when they are added (`metrics/deal.py`). Directories of other tools are copied into
a bank. Their records are drawn one by one, so sizes of training sets may be off by 5% or 3 standard deviations of such
draws (`dealt_alike`): by more, p (all used) rejected full use far too often where memory fades with size.
"""
