"""The audits: a folder each, and none imports another, but `power` plans what `ks` does.

`ks` judges targets by shadow models, `attack` by models of random halves (`train_splits`) or the shadow models of a
bank, view by view (`open_bank`). `measure_pdtp` compares with models that leave out one record each (`LeftOut`),
`measure_efficacy` reads parameters and their gradients (`EfficacyByLayer`), `compare_unlearning` the parameters of
models that forgot, beside models that were retrained, and `measure_power` has shadow models judge one another. A folder
has the audit's pool, draw, judgement and result, which is its JSON. All of it runs on the host.
"""
