"""The content of a `ks` run and its charts, as those of every kind of run."""

from jaxaudit.report.ks.view import KS as KS
