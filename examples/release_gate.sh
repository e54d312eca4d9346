#!/usr/bin/env bash
# A job of continuous integration that fails if a release has not forgotten what was deleted.
#
#     bash release_gate.sh BANK OUTPUTS
#
# BANK has shadow models that were trained once (jaxaudit shadows train). OUTPUTS are those of the release
# candidate: a .npz with arrays query, on the deleted records, and holdout. Nothing is trained here: the job takes seconds.
# Exit status: 0 forgotten; 3 not forgotten, or the data do not tell; 1 or 2 something went wrong.
set -euo pipefail
bank=$1 outputs=$2
jaxaudit ks --shadows "$bank" --target "$outputs" --fail-on not-forgotten --fail-on inconclusive --report forgotten.html
