"""`jaxaudit efficacy` on records of several arrays, and data that stay on disk."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from flax import nnx
from support.cli_runs import jaxaudit, own_modules, refused

from jaxaudit.data import safetensors_bytes
from jaxaudit.models import name_weights
from jaxaudit.report import schema_of

NETS = """
import jax.numpy as jnp
from flax import linen, nnx
class Text(nnx.Module):
    def __init__(self, num_classes, *, rngs):
        self.embed, self.out = nnx.Embed(9, 4, rngs=rngs), nnx.Linear(5, num_classes, rngs=rngs)
    def __call__(self, input_ids, attention_mask, age):
        shown = self.embed(input_ids) * attention_mask[..., None]
        return self.out(jnp.concatenate([shown.sum(1) / attention_mask.sum(1, keepdims=True), age[:, None]], axis=1))
class Numbers(nnx.Module):
    def __init__(self, input_shape, classes, *, rngs):
        self.first, self.out = nnx.Linear(input_shape[0], 6, rngs=rngs), nnx.Linear(6, classes, rngs=rngs)
    def __call__(self, inputs):
        return self.out(nnx.tanh(self.first(inputs)))
class Linen(linen.Module):
    @linen.compact
    def __call__(self, inputs):
        return linen.Dense(3)(inputs)
"""
N = 11
RANDOM = np.random.default_rng(4)
IDS, AGE = RANDOM.integers(0, 9, (N, 6)), RANDOM.normal(size=N)
MASK = (np.arange(6) < RANDOM.integers(1, 7, (N, 1))).astype(np.int8)
X, Y = RANDOM.normal(size=(N, 3)).astype(np.float32), np.arange(N) % 3


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with own_modules(tmp_path):
        sys.path.insert(0, str(tmp_path))
        Path("nets.py").write_text(NETS)
        np.savez("texts.npz", input_ids=IDS, attention_mask=MASK, age=AGE, y=Y)
        yield tmp_path


def saved(name: str, *arguments: Any) -> tuple[Any, Any]:
    """The module's graph and weights, which are saved as NAME.safetensors."""
    import nets  # pyright: ignore[reportMissingImports]

    net = getattr(nets, name)(*arguments, rngs=nnx.Rngs(2))
    graph, params = nnx.split(net)
    Path(f"{name}.safetensors").write_bytes(safetensors_bytes(name_weights(params, {})))
    return graph, params


def test_a_network_gets_several_arrays_by_name():
    """From a .npz and from a folder; with a mask, whole numbers and fractions."""
    graph, params = saved("Text", 3)

    def log_prob(net: Any, i: int) -> Any:
        ids, mask, age = (jnp.asarray(each)[i][None] for each in (IDS, MASK, AGE))
        return jax.nn.log_softmax(net(ids, mask, age))[0, jnp.asarray(Y)[i]]

    gradient = jax.jit(jax.grad(lambda given, index: log_prob(nnx.merge(graph, given), index)))
    found = [jax.tree.leaves(gradient(params, index)) for index in range(N)]
    each = np.stack([np.concatenate([np.ravel(leaf) for leaf in leaves]).astype(np.float64) for leaves in found])
    norms = np.square(each).sum(axis=1)
    Path("folder").mkdir()
    for name, array in (("input_ids", IDS), ("attention_mask", MASK), ("age", AGE), ("y", Y)):
        np.save(f"folder/{name}.npy", array)
    words = ("efficacy", "--model", "nets:Text", "--params", "Text.safetensors", "--json", "--data")
    for data in ("texts.npz", "folder"):
        result = jaxaudit(*words, data).result
        jsonschema.validate(result, schema_of("efficacy"))
        (model,) = result["models"]
        assert model["information"] == pytest.approx(norms.mean(), rel=1e-4)
        assert model["bound"] == pytest.approx(1 / np.square(each.mean(axis=0)).sum(), rel=1e-4)
        np.testing.assert_allclose([r["information"][model["name"]] for r in result["records"]], norms, rtol=1e-3)
        assert {record["class"] for record in result["records"]} == {"0", "1", "2"}
        assert result["provenance"]["data"]["arrays"]["input_ids"] == [6]
    assert result["likelihood"] == "categorical"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data", "texts.npz", "--model", "nets:Linen"), ("input_ids", "Linen", "named x")),
        (("--data", "large.npz", "--model", "nets:Text"), ("ids", "16,777,216")),
        (("--data", "fractions.npz", "--model", "nets:Text"), ("fractions.npz", "no classes")),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(words: tuple[str, ...], said: tuple[str, ...]):
    saved("Numbers", (3,), 2)
    np.savez("large.npz", input_ids=IDS + 2**24, attention_mask=MASK, age=AGE, y=Y % 2)
    np.savez("fractions.npz", input_ids=IDS, attention_mask=MASK, age=AGE, y=Y / 2)
    saved("Text", 2)
    model = ("--model", "nets:Numbers") if "--model" not in words else ()
    params = "Text.safetensors" if "nets:Text" in words else "Numbers.safetensors"
    refused(("efficacy", *model, "--params", params, *words), said)


STREAMED = """
import sys, jax
from jaxaudit.audits import NamedWeights, measure_efficacy
from jaxaudit.data import open_records
from jaxaudit.models import MLP, pure_module
from functools import partial
records = open_records(sys.argv[1])
net = pure_module(partial(MLP, hidden=(4,)), records.inputs.shape[1:], 3)
found = measure_efficacy(net, NamedWeights("judged", *net.init(jax.random.key(1))), records)
records.content_hash
(peak,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(found.result.models[0].information, peak.split()[1])
"""


@pytest.mark.outer
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_data():
    """480 MB more on disk, and not half of that in memory."""
    peaks = []
    for count in (4_000, 16_000):
        large = np.lib.format.open_memmap("x.npy", "w+", np.float32, (count, 10_000))
        for start in range(0, count, 1_000):
            large[start : start + 1_000] = np.random.default_rng(start).random((1_000, 10_000), np.float32)
        del large
        Path("large").mkdir(exist_ok=True)
        Path("x.npy").replace("large/x.npy")
        np.save("large/y.npy", np.arange(count) % 3)
        done = subprocess.run(
            [sys.executable, "-c", STREAMED, "large"], capture_output=True, text=True, check=True, timeout=500
        )
        peaks.append(int(done.stdout.split()[1]) / 1024)
    assert peaks[1] - peaks[0] < 240, peaks
