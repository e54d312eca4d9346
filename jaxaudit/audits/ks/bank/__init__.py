"""Banks of shadow models for the tests of `ks`: their training sets, their training, and reading their outputs."""
