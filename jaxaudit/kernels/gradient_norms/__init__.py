"""Exact per-example squared gradient norms of any JAX function, and Fisher information computed from them.

A gradient is taken where its parameter is. Per-example gradient norms of any function: `log_prob` is traced for a batch
of one, its operations are split into those with and without the example in them, and one backward pass goes to the
outputs of those where a value made of parameters alone meets the example. A few local rules (products, convolutions,
look-ups) contract what meets there (of a table only the rows taken are summed); any other operation is differentiated
by JAX on the spot, so nothing is ever wrong for being unknown, and the result says which leaves paid for it. The axis
of examples is put in afterwards by `vmap`: none has to be guessed, and no example can touch another. A function with a
derivative of its own (ReLU) stays one operation, and keeps it. A scan stays a loop (`tracing.py`): what its steps
compute without the example is moved out of it, once or for all steps at once, so that a step takes parameters from
outside by the same rules; the pass back gives the cotangents of all steps, and steps that share an array are positions
of one sum, as tokens are. A step whose own values without the example would be too many to hold is left to JAX with its
scan.
"""

from jaxaudit.kernels.gradient_norms.directions import Similarity as Similarity
from jaxaudit.kernels.gradient_norms.directions import gradient_similarity as gradient_similarity
from jaxaudit.kernels.gradient_norms.directions import mean_gradient as mean_gradient
from jaxaudit.kernels.gradient_norms.expected import expected_squared_grad_norms as expected_squared_grad_norms
from jaxaudit.kernels.gradient_norms.norms import SquaredGradNorms as SquaredGradNorms
from jaxaudit.kernels.gradient_norms.norms import examples_at_a_time as examples_at_a_time
from jaxaudit.kernels.gradient_norms.norms import fisher_diagonal as fisher_diagonal
from jaxaudit.kernels.gradient_norms.norms import squared_grad_norms as squared_grad_norms
