"""`jaxaudit scores`: tables of scores for `jaxaudit ks`."""
