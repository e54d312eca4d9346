"""A bank: shadow models that anybody trained, as a directory of plain arrays and one JSON file.

bank.json           what the arrays are: see `Description`
labels.npy          int [n]: the class of each record; columns are the query set, the holdout, the calibration set;
                    missing for `score` and `log_likelihood`, whose records have no classes
membership.npy      bool [models, n]: which records each model is trained on
seeds.npy           uint32 [models]: a seed for the training of each model; may be missing
groups.npy          int [query and holdout]: the group of each record, where groups were dealt; else missing
dropped.npy         bool [n]: records that no model is trained on and no test uses, because of copies; may be missing
correct.npy         bool [models, n]: for log-odds, whether a record's own class has the largest output; else missing
outputs.npy         the outputs of all models in one file, with a leading axis of models; else a folder:
outputs/00000.npy   float16/32/64 [n, classes] of model 0; [n, views, classes] where a record has several views; for
                    `log_odds`, `score` and `log_likelihood` the same without classes

Names are fixed, so that any script can write outputs, and none leads elsewhere. A missing file of outputs is a model
that is not trained yet; there is no other state. Outputs are checked whenever they are read, because anybody may write
there, and held against all rows when they are added (`metrics/deal.py`). Directories of other tools are copied into
a bank. Their records are drawn one by one, so sizes of training sets may be off by 5% or 3 standard deviations of such
draws (`dealt_alike`): by more, p (all used) rejected full use far too often where memory fades with size.
"""
