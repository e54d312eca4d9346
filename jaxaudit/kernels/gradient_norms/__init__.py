"""Exact per-example squared gradients of any function of parameters and examples."""

from jaxaudit.kernels.gradient_norms.norms import SquaredGradNorms, fisher_diagonal, squared_grad_norms

__all__ = ["SquaredGradNorms", "fisher_diagonal", "squared_grad_norms"]
