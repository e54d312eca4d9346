"""Exact per-example squared gradient norms of any JAX function, and Fisher information computed from them.

`log_prob` is traced for a batch of one (`program.py`), and its operations are split into those with and without the
example in them. One backward pass goes to the outputs of the *sites*, where parameters meet the example (`plan.py`). A
few local rules contract what meets there (`rules.py`). JAX differentiates any other operation on the spot, so nothing
is wrong for being unknown. The axis of examples is put in afterwards by `vmap`: no example can touch another. A scan
stays a loop, whose steps are positions of one sum, as tokens are.
"""

from jaxaudit.kernels.gradient_norms.norms import SquaredGradNorms as SquaredGradNorms
from jaxaudit.kernels.gradient_norms.norms import examples_at_a_time as examples_at_a_time
from jaxaudit.kernels.gradient_norms.norms import fisher_diagonal as fisher_diagonal
from jaxaudit.kernels.gradient_norms.norms import mean_gradient as mean_gradient
from jaxaudit.kernels.gradient_norms.norms import squared_grad_norms as squared_grad_norms
