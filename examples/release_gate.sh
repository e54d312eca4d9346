#!/usr/bin/env bash
# A job of continuous integration that fails if a release has not forgotten what was deleted.
#
#     bash release_gate.sh BANK OUTPUTS HOLDOUT_OUTPUTS
#
# BANK has shadow models that were trained once (jaxaudit shadows train). The release candidate gave the two files of
# outputs, on the deleted records and on the holdout. Nothing is trained here: the job takes seconds.
# Exit status: 0 forgotten; 3 not forgotten, or the data do not tell; 1 or 2 something went wrong.
set -euo pipefail
bank=$1 outputs=$2 holdout=$3
jaxaudit ks --shadows "$bank" --target "$outputs" --holdout-target "$holdout" \
    --fail-on not-forgotten --fail-on inconclusive --report forgotten.html
