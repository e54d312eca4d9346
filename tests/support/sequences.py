"""Small records of tokens, and a GPT by its definition."""

from functools import partial
from typing import Any

import jax
import numpy as np
import optax

import jaxaudit as ja
from jaxaudit import Texts
from jaxaudit.models import GPT

PROMPTS = ("Who is Ann?", "Where is Bo?", "Why?", "When did Cy go?", "How is Di?", "Is Ed in?")
ANSWERS = ("A cook.", "In Rome, by the sea.", "Nobody knows.", "In May.", "Well, and she sings.", "No.")
TEXTS = Texts("question", PROMPTS, ANSWERS, (b"",) * len(PROMPTS), "small")
SMALL = partial(GPT, depth=2, width=8, heads=2)


def small_learner(length: int, vocabulary: int, factory: Any = SMALL, **recipe: Any) -> Any:
    recipe = {"optimizer": optax.adam(1e-2), "epochs": 3, "batch_size": 2, **recipe}
    return ja.language_model(factory, length, vocabulary, **recipe)


def gpt(params: Any, tokens: np.ndarray, heads: int) -> np.ndarray:
    """Radford et al. (2019) by its parameters, one record, position and head at a time; float64."""

    def norm(vector: Any, layer: Any) -> Any:
        return (vector - vector.mean()) / np.sqrt(vector.var() + 1e-5) * layer["scale"] + layer["bias"]

    def dense(vector: Any, layer: Any) -> Any:
        return vector @ layer["kernel"] + layer.get("bias", 0)

    def gelu(x: Any) -> Any:
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    said = []
    for record in tokens:
        vectors = [params["tokens"][token] + params["positions"][at] for at, token in enumerate(record)]
        for number in sorted(params["blocks"]):
            block = params["blocks"][number]
            parts = [np.split(dense(norm(each, block["first_norm"]), block["attend"]), 3) for each in vectors]
            after = []
            for at, vector in enumerate(vectors):
                seen = []
                for head in range(heads):
                    own = slice(head * len(vector) // heads, (head + 1) * len(vector) // heads)
                    query = parts[at][0][own]
                    alike = np.exp([query @ key[own] / np.sqrt(len(query)) for _, key, _ in parts[: at + 1]])
                    values = np.array([value[own] for _, _, value in parts[: at + 1]])
                    seen.append(alike @ values / alike.sum())
                vector = vector + dense(np.concatenate(seen), block["merge"])
                hidden = gelu(dense(norm(vector, block["second_norm"]), block["hidden"]))
                after.append(vector + dense(hidden, block["output"]))
            vectors = after
        said.append([norm(each, params["norm"]) for each in vectors])
    kernel = params["output"]["kernel"] if "output" in params else params["tokens"].T
    return np.array(said) @ kernel


def likelihoods(logits: Any, record: Any) -> Any:
    """The log-likelihoods of a record's tokens that count, one after another."""
    following = np.asarray(record)[1:]
    counted = np.flatnonzero(following >= 0)
    return jax.nn.log_softmax(logits)[counted, following[counted]]
