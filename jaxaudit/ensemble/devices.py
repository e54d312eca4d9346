"""Where the models live: over all local devices, a share of every chunk on each."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), ("models",))


def place_models(tree: Any, axis: int = 0) -> Any:
    """`tree` on the devices, its models axis split evenly among them."""
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec(*[None] * axis, "models")))


def place_pool(tree: Any) -> Any:
    """`tree` on every device, whole."""
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec()))
