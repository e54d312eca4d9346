"""Placement on devices: the models of a chunk are split over all local devices, the pool is on each."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), ("models",))


def place_models(tree: Any, axis: int = 0) -> Any:
    """Puts `tree` on the devices, with its models axis split evenly over them."""
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec(*[None] * axis, "models")))


def place_pool(tree: Any) -> Any:
    """Puts a copy of `tree` on every device."""
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec()))
