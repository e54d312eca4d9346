"""Shadow models that anybody trained, as the tests of `ks` need them: how a bank is dealt, and what is in it."""
