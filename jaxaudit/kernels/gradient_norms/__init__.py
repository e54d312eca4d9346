"""Exact per-example squared gradient norms of any JAX function, and Fisher information computed from them."""

from jaxaudit.kernels.gradient_norms.directions import Similarity, gradient_similarity, mean_gradient
from jaxaudit.kernels.gradient_norms.expected import expected_squared_grad_norms
from jaxaudit.kernels.gradient_norms.norms import SquaredGradNorms, fisher_diagonal, squared_grad_norms

__all__ = [
    "Similarity",
    "SquaredGradNorms",
    "expected_squared_grad_norms",
    "fisher_diagonal",
    "gradient_similarity",
    "mean_gradient",
    "squared_grad_norms",
]
