"""The inputs of `jaxaudit efficacy` where records are texts: causal language models of `transformers` from folders."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from jaxaudit.audits.efficacy.audit import NamedWeights
from jaxaudit.audits.efficacy.result import EfficacyAudit
from jaxaudit.audits.efficacy.sequences import measure_sequence_efficacy
from jaxaudit.cli.efficacy.command import EfficacyOptions
from jaxaudit.cli.own_model import pretrained_config
from jaxaudit.cli.parsers import parse_reference, parse_template
from jaxaudit.cli.progress import say
from jaxaudit.cli.texts import read_told, tell_of_chats
from jaxaudit.data import Examples
from jaxaudit.data.sequences import padded
from jaxaudit.errors import InputError
from jaxaudit.kernels.likelihoods import SEQUENCE
from jaxaudit.models.causal import Causal, causal_model
from jaxaudit.models.language_model import LanguageModel


class TextInputs(NamedTuple):
    """The language model, its weights, others to compare with, and the records as tokens."""

    model: Causal
    judged: NamedWeights
    references: list[NamedWeights]
    examples: Examples

    def audit(self, options: EfficacyOptions) -> EfficacyAudit:
        """The measurement."""

        def log_likelihood(params: dict[str, Array], tokens: Array, rest: dict[str, Array] | None = None) -> Array:
            tensors = {name.replace("/", "."): tensor for name, tensor in params.items()} | (rest or {})
            return SEQUENCE.log_prob(self.model.apply(tensors, jnp.where(tokens < 0, ~tokens, tokens)), tokens)

        return measure_sequence_efficacy(
            log_likelihood,
            self.judged,
            self.examples.inputs,
            references=self.references,
            vocabulary=self.model.model.vocabulary,
            framework="torch",
            chunk=options.audit.chunk,
            notes=("A record's own tokens are its labels; of a prompt or question, the answer's alone count.",),
        )


def read_text_inputs(options: EfficacyOptions) -> TextInputs:
    """The models and records of these options."""
    folder, audit, model = pretrained_config(options.model.model), options.audit, options.model
    if folder is None or folder.suffix == ".json" or model.params is not None:
        raise InputError(
            f"--data {options.data.data}: texts need a causal language model of transformers; name the folder with its "
            "weights and its tokenizer (--model), and leave out --params."
        )
    if audit.true_fisher or audit.likelihood != "categorical":
        raise InputError(
            "--likelihood and --true-fisher are of records with labels; the labels of a text are its own tokens: leave "
            "them out."
        )
    sources = [parse_reference(text) for text in model.reference]
    if any(path is None for _, path in sources):
        raise InputError("--reference untrained is of other networks; give a language model's as NAME=FOLDER.")
    texts, tokenizer = read_told(options.data.data or ""), LanguageModel(folder, "float32")
    template = options.data.template and parse_template(options.data.template)
    for note in tokenizer.notes:
        say(note)
    tell_of_chats([texts], template, [tokenizer])
    encoded = tokenizer.encode_texts(texts, template)
    (examples,) = padded([texts], [encoded], tokenizer.end, tokenizer.positions)
    say(f"reading {len(sources) + 1} language model{'s' if sources else ''}")
    judged = causal_model(folder)
    references_by_name = {name: causal_model(path) for name, path in sources if path}
    for name, reference in references_by_name.items():
        if not reference.model.computes_as(judged.model):
            raise InputError(
                f"--reference {name}: its config.json or its tokenizer is not that of {judged.model.name}; weights are "
                "compared in one network."
            )
    references = [_named(name, reference) for name, reference in references_by_name.items()]
    return TextInputs(judged, _named(judged.model.name, judged), references, examples)


def _named(name: str, model: Causal) -> NamedWeights:
    """The weights of a model; a layer's name ends where that of its parameter begins."""
    return NamedWeights(
        name, {"/".join(weight.rsplit(".", 1)): values for weight, values in model.weights.items()}, model.rest
    )
