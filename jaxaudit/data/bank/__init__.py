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
"""
