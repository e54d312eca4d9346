"""A bank: shadow models that anybody trained, as a directory of plain arrays and one JSON file.

bank.json           what the arrays are: see `Description`
labels.npy          int [n]: the class of each record; columns are the query set, the holdout, the calibration set;
                    missing for `score` and `log_likelihood`, whose records have no classes
membership.npy      bool [models, n]: which records each model is trained on
seeds.npy           uint32 [models]: a seed for the training of each model; may be missing
groups.npy          int [query and holdout]: the group of each record, where groups were dealt; else missing
designs.npy         int [models]: the index of each model's design among the names in bank.json; missing for one design
dropped.npy         bool [n]: records that no model is trained on and no test uses, because of copies; may be missing
correct.npy         bool [models, n]: for log-odds, whether a record's own class has the largest output; else missing
outputs.npy         the outputs of all models in one file, with a leading axis of models; else a folder:
outputs/00000.npy   float16/32/64 [n, classes] of model 0; [n, views, classes] where a record has several views; for
                    `log_odds`, `score` and `log_likelihood` the same without classes

A missing file of outputs means a model that is not trained yet. File names are fixed, so none can lead elsewhere.

A shadow model is its row and its outputs, whoever trained it. A bank (`data/bank/`) is a directory of plain arrays with
fixed names, so that any script can read its rows and write its outputs, and a missing file is a model that is not
trained yet: there is no other state. Rows are those that `ks` would draw with the same seed, and depend on the seed and
the number of the model alone, so a bank grows. Records keep their columns when they are dropped (`--drop-overlap`), so
a script needs no second list. Outputs are read a file at a time, as memory maps, and are checked whenever they are
read, because nobody has to ask before writing there. What `shadows add` puts there is also held against all rows
(`metrics/row_fit.py`): given outputs, a row of another model was drawn at random, so how well they fit it has a known
distribution whatever the model is, and files in the wrong order are found at a stated rate of false alarms. Directories
of other tools are copied into a bank (`shadows import`; a file a tool in `data/bank/`), not read in place: one format
is checked, and nothing behind it knows where a model came from. Their records are drawn one by one, so training sets
vary in size. p (not used) permutes the target's scores and does not care; p (all used) ranks a target trained on the
query set among them, and a model of fewer records remembers each better. So sizes may be off by 5% or by 3 standard
deviations of such draws (`dealt_alike`): by more, full use was rejected far too often where memory fades with size.
"""
