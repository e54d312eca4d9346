"""Exact per-example squared gradient norms of any JAX function, and Fisher information computed from them."""

from jaxaudit.kernels.gradient_norms.directions import Similarity as Similarity
from jaxaudit.kernels.gradient_norms.directions import gradient_similarity as gradient_similarity
from jaxaudit.kernels.gradient_norms.directions import mean_gradient as mean_gradient
from jaxaudit.kernels.gradient_norms.expected import expected_squared_grad_norms as expected_squared_grad_norms
from jaxaudit.kernels.gradient_norms.norms import SquaredGradNorms as SquaredGradNorms
from jaxaudit.kernels.gradient_norms.norms import examples_at_a_time as examples_at_a_time
from jaxaudit.kernels.gradient_norms.norms import fisher_diagonal as fisher_diagonal
from jaxaudit.kernels.gradient_norms.norms import squared_grad_norms as squared_grad_norms
