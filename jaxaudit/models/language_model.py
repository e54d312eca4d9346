"""Causal language models of `transformers` from a folder on disk: no download, no foreign code, safetensors only.

A low-rank adapter, as `peft` writes it, is merged with them: W + s B A are the weights of the adapted layer; s is alpha
/ r (see `causal.py`), and alpha / sqrt(r) in rank-stabilised LoRA (Kalajdzievski 2023, arXiv 2312.03732). What is more
than that, such as the magnitudes of DoRA, layers with a rank of their own or trained whole, or a start that changed W,
is refused: without it the model would be another one. The file says which layers have a pair of matrices."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import ml_dtypes
import numpy as np
from jaxtyping import Float

from jaxaudit.data.chat_templates import LONGEST_TEMPLATE, render_chats
from jaxaudit.data.formats.parsing import parsing
from jaxaudit.data.memory import MAX_BYTES
from jaxaudit.data.paths import exists, open_data, read_small
from jaxaudit.data.sequences import (
    LARGEST_TOKENIZER,
    MOST_OF_ITS_OWN,
    Normalizers,
    another_tokenizer,
    answer_start,
    calling,
    pieces,
    prompts_of,
    settle,
    strings_of,
)
from jaxaudit.data.texts import Texts
from jaxaudit.data.weights import read_weights, weight_files
from jaxaudit.errors import InputError, check_among
from jaxaudit.models import pretrained
from jaxaudit.models.pretrained import TOKENIZER, TOKENIZER_CONFIG, model_entries, tokenizer_folder_of

WITH_ADDED = (TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES = (TOKENIZER, *WITH_ADDED, "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja")
CAUSAL = {"AutoModelForCausalLM": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"}
OTHER = "no causal language model; scores need one that predicts each token from those before it, as ...ForCausalLM"
VERSION = "transformers_version"
PRECISIONS = ("float32", "bfloat16", "float16")
STARTS = ("characters", "prompt-tokens")
"""Where an answer begins, see `LanguageModel.encode`."""
TRIED, ROUNDING = 6, 1e-5
"""The tokens that a network is tried on, and how far logits in float32 may differ that are equal but for rounding."""
POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx")


def folder_hash(folder: Path) -> str:
    """`blake2b:...` of the configuration, tokenizer and weights in a folder of `save_pretrained`."""
    digest = hashlib.blake2b(digest_size=16)
    names = sorted({pretrained.CONFIG, *TOKENIZER_FILES, *(path.name for path in weight_files(folder))})
    for name in names:
        if exists(folder / name):
            with open_data(folder / name) as file:
                digest.update(f"{name} {hashlib.file_digest(cast(Any, file), hashlib.blake2b).hexdigest()}\n".encode())
    return f"blake2b:{digest.hexdigest()}"


class Encoded(NamedTuple):
    """A record as tokens, and the index of the first that is scored: at least 1, or the number of tokens."""

    tokens: tuple[int, ...]
    start: int


class LanguageModel:
    """A causal language model and its tokenizer, read from a folder that `save_pretrained` wrote.

    Attributes:
        positions: the largest number of tokens that a record may have; None if the configuration states no limit.
        precision: the number format of weights and activations, one of `PRECISIONS`.
        chat_template: of the tokenizer, in Jinja's language. `vocabulary`: the number of different tokens.
        notes: sentences on settings of the tokenizer that were turned off here, such as random cuts used in training.
    """

    def __init__(self, folder: Path, precision: str | None = None, adapter: Path | None = None) -> None:
        """Reads configuration and tokenizer, and builds the network once without allocating its tensors. `precision`:
        by default the one that the configuration states, else float32. `adapter`: the folder of a low-rank adapter,
        merged with the weights when these are loaded; its tokenizer, if any, is the model's.
        """
        self._folder, file = folder, folder / pretrained.CONFIG
        self.name = (adapter or folder).resolve().name
        entries, self._tokenizer_folder = model_entries(folder, adapter), tokenizer_folder_of(folder, adapter)
        self._library = pretrained.import_transformers(file)
        self._lora = None if adapter is None else read_lora(adapter)
        self.precision = precision or entries.get("dtype") or entries.get("torch_dtype") or "float32"
        check_among(PRECISIONS, precision=str(self.precision)[:40])
        network = pretrained.architecture_of(entries, file, CAUSAL, OTHER)
        self._built = pretrained.built_once(entries, file, network, self.precision, MAX_BYTES)
        text_config = self._built.config.get_text_config()
        self.vocabulary = int(text_config.vocab_size)
        stated = (getattr(text_config, name, None) for name in POSITIONS)
        self.positions = next((count for count in stated if isinstance(count, int) and count > 0), None)
        self._tokenizer = self._read_tokenizer()
        own_tokenizer = (f"{self.name}: its own tokenizer cuts the texts",) if self._tokenizer_folder != folder else ()
        self.notes = (*own_tokenizer, *settle(self._tokenizer.backend_tokenizer, str(self._tokenizer_folder)))
        self._normalizers = Normalizers(self._tokenizer.backend_tokenizer.to_str(), str(self._tokenizer_folder))
        self._end: int | None = self._tokenizer.eos_token_id
        self.chat_template = self._read_chat_template()

    @property
    def other_base(self) -> str | None:
        """The name that the adapter states of its base model, if that is another than the folder's; may be empty."""
        if self._lora is None:
            return None
        stated = re.split(r"[/\\]", self._lora.base.rstrip("/\\"))[-1]
        return None if stated == self._folder.resolve().name else stated[:60]

    @property
    def network(self) -> tuple[Any, Any]:
        """What is computed, whatever the weights: equal of models with one network and one tokenizer."""
        entries = pretrained.without(
            pretrained.entries_of(self._folder / pretrained.CONFIG), {*pretrained.NOT_OF_THE_NETWORK}
        )
        network_entries = {
            name: entry for name, entry in entries.items() if not name.startswith("_") and name != VERSION
        }
        return network_entries, self._tokenizer.backend_tokenizer.to_str()

    def encode_texts(self, texts: Texts, template: str | None = None, start: str = STARTS[0]) -> list[Encoded]:
        """`encode` of the records of a file; chats by `template` (see `sequences`), or as `apply_chat_template` cuts
        them: up to the end of the answer's turn, or the token for the end of text.
        """
        if self.chat_template is None or template is not None or not texts.are_chats:
            return self.encode(prompts_of(texts, template), texts.answers, start)
        special_tokens = {name: text for name, text in self._tokenizer.special_tokens_map.items() if type(text) is str}
        rendered = render_chats(self.chat_template, texts.chats(), special_tokens, str(self._tokenizer_folder))
        end = special_tokens.get("eos_token", "")
        prompts, turns = zip(*rendered, strict=True)
        pairs = zip(turns, texts.answers, strict=True)
        answers = [turn + (end if turn.strip() == answer.strip() else "") for turn, answer in pairs]
        return self.encode(prompts, answers, start, special=False)

    def encode(
        self, prompts: Sequence[str], answers: Sequence[str], start: str = STARTS[0], *, special: bool = True
    ) -> list[Encoded]:
        """Cuts records into tokens: one `Encoded` for each pair of prompt and answer, joined without a blank and read
        as one text.

        Only the tokens of the answer are scored, and never the first token of a record. A text without a prompt has the
        empty string as its prompt. Special tokens behind the answer count as the answer's. A record with a prompt ends
        in the token for the end of text, if the tokenizer has one. No record is shortened to `positions`.

        Args:
            start: which token is the first of the answer, one of `STARTS`. `characters`: the first token that contains
                a character of the answer, even if the token also contains the end of the prompt. `prompt-tokens`: the
                token with index k, where k is the number of tokens of the prompt alone. open-unlearning counts in this
                way, which leaves out a token that prompt and answer share.
            special: whether special tokens are added, at the start or the end; not where the texts have them.
        """
        wholes = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
        encoded = self._cut(wholes, special)
        counted = start == "prompt-tokens"
        alone = [len(tokens) for tokens, _ in self._cut(prompts, special)] if counted else []
        most = max(self._end or 0, *(max(tokens, default=0) for tokens, _ in encoded), 0)
        if most >= self.vocabulary:
            raise InputError(
                f"{self._tokenizer_folder}: its tokenizer has the token {most:,}, and the model knows "
                f"{self.vocabulary:,}; is it the model's own?"
            )
        encoded_texts = []
        for row, (prompt, (tokens, ends)) in enumerate(zip(prompts, encoded, strict=True)):
            first = 1 if counted else answer_start(ends, len(prompt))
            if counted and prompt:
                first = alone[row]
            if special and prompt and self._end is not None and tokens[-1:] != [self._end]:
                tokens = [*tokens, self._end]
            encoded_texts.append(Encoded(tuple(tokens), min(max(first, 1), len(tokens))))
        return encoded_texts

    def _cut(self, texts: Sequence[str], special: bool) -> list[tuple[list[int], list[int]]]:
        """The tokens of each text, and of each the number of characters up to its end; 0 if the tokenizer added it."""
        cut_tokens = []
        for piece in pieces(texts):
            self._normalizers.refuse_growth(piece)
            with calling(f"{self._tokenizer_folder}: its tokenizer fails", "is it the model's own?"):
                cut = self._tokenizer(
                    list(piece),
                    add_special_tokens=special,
                    verbose=False,
                    return_offsets_mapping=True,
                    return_special_tokens_mask=True,
                )
                columns = [cut[name] for name in ("input_ids", "offset_mapping", "special_tokens_mask")]
            for tokens, spans, added in zip(*columns, strict=True):
                # A token of the text that has no character, such as a blank put before it, is of its first one.
                ends = [0 if is_added else max(end, 1) for (_, end), is_added in zip(spans, added, strict=True)]
                cut_tokens.append((tokens, ends))
        return cut_tokens

    @property
    def end(self) -> int:
        """The token at the end of a text; 0 if the tokenizer has none."""
        return self._end or 0

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        with calling(f"{self._tokenizer_folder}: its tokenizer fails", "is it the model's own?"):
            return self._tokenizer.decode(list(tokens), skip_special_tokens=True)

    def load(self) -> Any:
        """As `load_on_cpu`, on the accelerator that PyTorch has or the CPU, and tried there (`try_out`)."""
        torch, module = pretrained.pytorch(), self.load_on_cpu()
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        # Once imported, torchax states an accelerator of its own, which holds no tensors of PyTorch.
        module = module if accelerator is None or accelerator.type == "jax" else module.to(accelerator)
        self.try_out(module)
        return module

    def try_out(self, module: Any) -> tuple[Any, Any]:
        """A few tokens of two records that begin alike, and the module's logits of the next ones. Refuses logits that
        are not finite, or that show that the network sees tokens behind (in half precision, only if it was trained to).
        """
        torch, half = pretrained.pytorch(), min(TRIED, self.positions or TRIED) // 2
        token_pair = np.random.default_rng(1).integers(0, self.vocabulary, (2, 2 * half))
        token_pair[1, :half], network = token_pair[0, :half], f"{self._folder}: {self._built.kind.__name__}"
        with parsing(f"{network} cannot compute", "is a number in config.json wrong?"), torch.no_grad():
            tokens = torch.from_numpy(token_pair).to(module.device)
            logits = module(input_ids=tokens, use_cache=False).logits
            first, second = logits[:, :half].float()
            most = max(ROUNDING, torch.finfo(getattr(torch, self.precision)).eps) * first.norm()
            is_causal = bool((first - second).norm() <= most)
        if not is_causal:
            raise InputError(
                f"{network} predicts a token by those behind it, too, or its numbers are not finite. "
                "Scores need a model that sees what precedes a token alone (is_decoder in config.json)."
            )
        return tokens, logits

    def load_on_cpu(self, **how: Any) -> Any:
        """The PyTorch module with its weights, in evaluation mode; `how` are further arguments of `from_pretrained`."""
        torch = pretrained.pytorch()
        weights, state = read_weights(self._folder), {}
        for name in list(weights):
            # Taken out one by one, so that few are in memory twice.
            values = weights.pop(name)
            if values.dtype.kind in "iu" and name.endswith("weight"):
                raise InputError(
                    f"{self._folder}: {name[:80]} has whole numbers ({values.dtype}), as quantised weights have; save "
                    "the model in float32 or bfloat16."
                )
            short = values.dtype == ml_dtypes.bfloat16
            tensor = torch.from_numpy(np.array(values.view(np.uint16) if short else values))
            state[name] = tensor.view(torch.bfloat16) if short else tensor
        wrong = f"{self._folder}: the weights do not fit {self._built.kind.__name__}"
        precision = getattr(torch, self.precision)
        advice = "is config.json that of this model?"
        module = self._built.with_weights(state, wrong, advice, dtype=precision, **how).eval()
        if self._lora is not None:
            self._lora.merge(module)
        return module

    def _read_chat_template(self) -> str | None:
        """The tokenizer's chat template; of several the one that is called default."""
        template = self._tokenizer.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        if template is not None and not (isinstance(template, str) and len(template) <= LONGEST_TEMPLATE):
            raise InputError(
                f"{self._tokenizer_folder}: its chat template is no text of at most {LONGEST_TEMPLATE:,} characters; "
                "is it the tokenizer's own?"
            )
        return template

    def _read_tokenizer(self) -> Any:
        """The tokenizer, from copies: `transformers` opens files by name, and a pipe could take their place."""
        files = {
            name: self._tokenizer_folder / name for name in TOKENIZER_FILES if exists(self._tokenizer_folder / name)
        }
        with TemporaryDirectory() as copies:
            for name, path in files.items():
                (Path(copies) / name).write_bytes(read_small(path, LARGEST_TOKENIZER))
            # Tokens that are added are changed by the rules for texts as they are read.
            saved = Normalizers(read_small(files[TOKENIZER], LARGEST_TOKENIZER), str(files[TOKENIZER]))
            further = set(strings_of([pretrained.entries_of(files[name]) for name in WITH_ADDED if name in files]))
            if sum(not text.isdigit() for text in further) > MOST_OF_ITS_OWN:
                raise another_tokenizer(str(self._tokenizer_folder), f"has more than {MOST_OF_ITS_OWN:,} added tokens")
            saved.refuse_growth([*saved.added, *further])
            with (
                calling(f"{self._tokenizer_folder}: its tokenizer cannot be read", "is it of another version?"),
                pretrained.offline(),
            ):
                tokenizer = self._library.AutoTokenizer.from_pretrained(
                    copies, config=self._built.config, local_files_only=True, trust_remote_code=False
                )
        if not tokenizer.is_fast:
            raise another_tokenizer(str(self._tokenizer_folder), f"its tokenizer_class does not read {TOKENIZER}")
        return tokenizer


A, B = ".lora_A.weight", ".lora_B.weight"
PREFIX = "base_model.model."
"""What `peft` puts before the name of a layer in files."""
WEIGHTS = "adapter_model.safetensors"
ADAPTER_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
"""`init_lora_weights` that leave the weights of the base model as they are."""
NO_PLAIN = (
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "modules_to_save",
    "trainable_token_indices",
    "target_parameters",
    "layer_replication",
    "rank_pattern",
    "alpha_pattern",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "velora_config",
    "megatron_config",
)
"""Entries of a configuration of more than low-rank matrices of one rank and scale beside linear layers."""


class Lora(NamedTuple):
    """An adapter: what its configuration calls the base model, and A and s B by the name of each changed layer."""

    folder: Path
    base: str
    matrices: dict[str, tuple[Float[np.ndarray, "rank inputs"], Float[np.ndarray, "outputs rank"]]]

    def merge(self, module: Any) -> None:
        """Adds the changes to the weights of a PyTorch module, computed in float32. A layer that shares its weights
        with another one, such as an output layer with the embedding, has its own afterwards.
        """
        torch, parts = pretrained.pytorch(), dict(module.named_modules())
        for name, (a, b) in self.matrices.items():
            part = parts.get(name)
            sizes = None if part is None else layer_sizes(part)
            if part is None or sizes is None:
                raise self._no_base(f"there is no linear layer {name[:80]!r}")
            if sizes != (a.shape[1], b.shape[0]):
                inputs, outputs = sizes
                raise self._no_base(
                    f"{name[:80]} has {inputs:,} inputs and {outputs:,} outputs, and the adapter is of "
                    f"{a.shape[1]:,} and {b.shape[0]:,}"
                )
            weight, change = part.weight.detach(), b @ a
            # GPT-2's own linear layer has its weights transposed.
            added = torch.from_numpy(change if isinstance(part, torch.nn.Linear) else change.T.copy())
            merged = (weight.float() + added.to(weight.device)).to(weight.dtype)
            part.weight = torch.nn.Parameter(merged, requires_grad=False)

    def _no_base(self, trouble: str) -> InputError:
        return InputError(f"{self.folder}: is no adapter of this model: {trouble}. Is the base model the right one?")


def read_lora(folder: Path) -> Lora:
    """The adapter in a folder that `peft`'s `save_pretrained` wrote."""
    file = folder / pretrained.ADAPTER
    if not exists(file) or not exists(folder / WEIGHTS):
        raise InputError(
            f"{folder}: has no {file.name} or no {WEIGHTS}; name the folder of an adapter that peft wrote, by "
            "save_pretrained(FOLDER, safe_serialization=True): other files of weights are pickles."
        )
    entries = pretrained.entries_of(file)
    _refuse_more(entries, file)
    rank, alpha = (_number(entries, name, file) for name in ("r", "lora_alpha"))
    scale = alpha / (rank**0.5 if entries.get("use_rslora") else rank)
    weights, matrices = read_weights(folder / WEIGHTS), dict[str, tuple[np.ndarray, np.ndarray]]()
    strange = [name for name in weights if not (name.startswith(PREFIX) and name.endswith((A, B)))]
    if strange or not weights:
        trouble = f"{strange[0][:80]!r} is no matrix" if strange else "there is no matrix"
        raise InputError(f"{folder / WEIGHTS}: {trouble} of a linear layer; {_MERGE}.")
    for layer in sorted({name.removesuffix(A).removesuffix(B) for name in weights}):
        a, b = (weights.get(layer + end) for end in (A, B))
        name = layer.removeprefix(PREFIX)
        if a is None or b is None or a.ndim != 2 or b.ndim != 2 or not a.size * b.size:
            raise InputError(f"{folder / WEIGHTS}: {name[:80]} has no two matrices; was the file cut?")
        if (a.shape[0], b.shape[1]) != (rank, rank) or a.dtype.kind in "iub" or b.dtype.kind in "iub":
            raise InputError(
                f"{folder / WEIGHTS}: {name[:80]} has matrices {a.dtype} {a.shape} and {b.dtype} {b.shape}, which must "
                f"be floats and fit each other at the rank that {pretrained.ADAPTER} states ({rank:g}): is it "
                f"quantised, or of another adapter? {_MERGE}."
            )
        matrices[name] = a.astype(np.float32), np.float32(scale) * b.astype(np.float32)
    return Lora(folder, str(entries.get("base_model_name_or_path") or "")[:200], matrices)


def layer_sizes(part: Any) -> tuple[int, int] | None:
    """The inputs and outputs of a linear layer of PyTorch, or of GPT-2's; None of any other part."""
    if isinstance(part, pretrained.pytorch().nn.Linear):
        return part.in_features, part.out_features
    return tuple(part.weight.shape) if type(part).__name__ == "Conv1D" else None


_MERGE = (
    "only plain LoRA is read; merge the adapter with its base model instead: "
    "peft.PeftModel.from_pretrained(base, ADAPTER).merge_and_unload().save_pretrained(FOLDER)"
)


def _refuse_more(entries: Mapping[str, Any], file: Path) -> None:
    more = [name for name in NO_PLAIN if entries.get(name)]
    if entries.get("peft_type") != "LORA":
        more.append("peft_type")
    if entries.get("bias") not in (None, "none"):
        more.append("bias")
    if entries.get("init_lora_weights") not in ADAPTER_STARTS:
        more.append("init_lora_weights")
    if more:
        raise InputError(
            f"{file}: has {', '.join(more)} of another kind, or of more than low-rank matrices of one rank; {_MERGE}."
        )


def _number(entries: Mapping[str, Any], name: str, file: Path) -> float:
    """The rank or alpha that a configuration states."""
    value = entries.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 2**31:
        raise InputError(f"{file}: {name} is no number above 0; is it the adapter_config.json that peft wrote?")
    return float(value)
