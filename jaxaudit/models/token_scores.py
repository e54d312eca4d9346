"""Scores of texts by a causal language model: numbers that are lower for records that the model was trained on.

As open-unlearning's `mia_loss`, `mia_min_k`, `mia_min_k_plus_plus` and `mia_zlib` compute them, signs included, of the
tokens that `LanguageModel.encode` says are scored; with its `prompt-tokens` these are open-unlearning's, too.

A text's scores are those of the field. `scores lm` computes loss, Min-K%, Min-K%++ and zlib ratio in PyTorch, as
open-unlearning does to rounding, so a table made here can stand beside its logs. It scores the tokens behind those of
the prompt, and the end of an answer for the loss alone. A model's folder is read as a classifier's is; its tokenizer is
read from copies, since `transformers` opens files by name. Values of a text's line that nothing needs are never
unpacked (`data/texts.py`), and a deal writes them again as they were. Pairs are dealt by independent fair coins, as a
test that flips signs assumes.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.data.cache import cached_rows
from jaxaudit.errors import InputError
from jaxaudit.models.language_model import Encoded, LanguageModel
from jaxaudit.models.pretrained import pytorch

SCORES = ("loss", "min_k", "min_k_plus_plus", "zlib")
LOWEST = 0.2
"""The share of tokens that Min-K% averages: those that the model found least likely."""
LEAST_VARIANCE = 1e-6
OUT_OF_MEMORY = ("out of memory", "can't allocate memory")
"""What PyTorch's errors say of a device, and of the CPU."""
TokenNumbers = tuple[Float[np.ndarray, " tokens"], Float[np.ndarray, " tokens"]]
MOST_TOKENS, MOST_LOGITS, MOST_AT_ONCE = 2**13, 2**27, 2**25


def token_scores(
    model: LanguageModel, records: Sequence[Encoded], progress: Callable[[int], object] = lambda tokens: None
) -> dict[str, Float[np.ndarray, " records"]]:
    """The scores of records, each lower for what the model is more likely to have been trained on.

    With log p(t), the log-probability of token t given those before it:

    - `loss`: the mean of -log p(t) over the scored tokens.
    - `min_k`: the same over the fifth of tokens with the lowest log p(t) (Min-K%, arXiv 2310.16789).
    - `min_k_plus_plus`: as `min_k`, of (log p(t) - m) / s, with mean m and standard deviation s of the log-probability
      under the model's own distribution at t (Min-K%++, arXiv 2404.02936).
    - `zlib`: `loss` by the bytes that zlib packs the scored text into (arXiv 2012.07805).

    The scores are kept in the cache folder, under digests of model and record, while others are computed: a text is
    scored once by a model, also where an earlier call was stopped. Texts that are scored beside others than before get
    the same numbers up to rounding.

    The two Min-K% leave out the last scored token, which ends an answer.

    Args:
        model: its weights are loaded here, and dropped at the end.
        records: of `model.encode`, none longer than `model.positions`.
        progress: told the tokens of the records that were scored before, then those of each batch that is done.

    Returns:
        a number a record of each of `SCORES`; NaN where there is no token to score. A batch that does not fit into
        memory is halved, and so are those after it.

    Raises:
        InputError: a single record does not fit into memory.
    """
    module, digests = model.load(), [_digest(model, record) for record in records]
    left = sum(len(record.tokens) for record in records)

    def report_progress(tokens: int) -> None:
        nonlocal left
        if tokens:
            left -= tokens
            progress(tokens)

    def build(indices: Int[np.ndarray, " new"]) -> Iterator[dict[int, Float[np.ndarray, " scores"]]]:
        new = {int(index): records[index] for index in indices}
        report_progress(left - sum(len(record.tokens) for record in new.values()))
        return _scores(model, module, new, report_progress)

    rows = cached_rows(f"token scores {_module_digest(module)}", digests, len(SCORES), build)
    report_progress(left)
    return dict(zip(SCORES, rows.T, strict=True))


def _digest(model: LanguageModel, record: Encoded) -> bytes:
    """Of all that a record's scores are of: its tokens, which of them are scored, and these as text."""
    digest = hashlib.blake2b(np.array([record.start, *record.tokens], np.int64).tobytes(), digest_size=16)
    digest.update(_scored_text(model, record))
    return digest.digest()


def _module_digest(module: Any) -> str:
    """Of all that a model's scores are of: its network, its weights as they are computed with, device and library."""
    torch = pytorch()
    network = {name: entry for name, entry in module.config.to_dict().items() if not name.startswith("_")}
    parts = (type(module).__name__, sorted(network.items(), key=str), str(module.device.type), torch.__version__)
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=16)
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _scored_text(model: LanguageModel, record: Encoded) -> bytes:
    return model.decode(record.tokens[record.start :]).encode("utf-8", "surrogatepass")


def _scores(
    model: LanguageModel, module: Any, records: Mapping[int, Encoded], progress: Callable[[int], object]
) -> Iterator[dict[int, Float[np.ndarray, " scores"]]]:
    """The scores of records under their keys, batch by batch."""
    lengths = {key: len(record.tokens) for key, record in records.items()}
    yield {key: np.full(len(SCORES), np.nan) for key, length in lengths.items() if not length}
    # Records of similar lengths, the longest first: what does not fit into memory fails at once.
    order = sorted((key for key, length in lengths.items() if length), key=lambda key: -lengths[key])
    most = min(MOST_TOKENS, MOST_LOGITS // model.vocabulary)
    while order:
        longest = lengths[order[0]]
        batch = order[: max(1, most // longest)]
        numbers_of_tokens = _scored_or_none(module, [records[key] for key in batch])
        if numbers_of_tokens is None:
            if len(batch) == 1:
                raise InputError(
                    f"{model.name}: a record of {longest:,} tokens does not fit into memory; shorten the longest "
                    "records, give `precision` bfloat16, or use a machine with more memory."
                )
            most = len(batch) // 2 * longest
            continue
        scores = {}
        for key, (token_log_probs, normal) in zip(batch, numbers_of_tokens, strict=True):
            loss = -token_log_probs.mean() if len(token_log_probs) else np.nan
            packed = loss / len(zlib.compress(_scored_text(model, records[key])))
            scores[key] = np.array([loss, _of_lowest(token_log_probs[:-1]), _of_lowest(normal[:-1]), packed])
        yield scores
        progress(sum(lengths[key] for key in batch))
        order = order[len(batch) :]


def _scored_or_none(module: Any, batch: Sequence[Encoded]) -> list[TokenNumbers] | None:
    """As `_scored`; None if it does not fit into memory."""
    try:
        return _scored(module, batch)
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)):
            raise
    # Only here, behind the error, are its tensors let go.
    # Once imported, torchax states an accelerator of its own, which has no memory to be emptied.
    if module.device.type != "cpu" and hasattr(accelerator := pytorch().accelerator, "empty_cache"):
        accelerator.empty_cache()
    return None


def _scored(module: Any, batch: Sequence[Encoded]) -> list[TokenNumbers]:
    """For each record, log p of its scored tokens, and the same normalised by the model's own distribution."""
    torch = pytorch()
    tokens, mask = np.zeros((2, len(batch), max(len(record.tokens) for record in batch)), np.int64)
    for row, record in enumerate(batch):
        tokens[row, : len(record.tokens)], mask[row, : len(record.tokens)] = record.tokens, 1
    counts = [len(record.tokens) - record.start for record in batch]
    rows = np.repeat(np.arange(len(batch)), counts)
    places = np.concatenate([np.arange(record.start, len(record.tokens)) for record in batch])
    with torch.inference_mode():
        on_device = [torch.from_numpy(array).to(module.device) for array in (tokens, mask, rows, places)]
        ids, mask, rows, places = on_device
        logits = module(input_ids=ids, attention_mask=mask, use_cache=False).logits
        token_parts, normal, size = [], [], max(1, MOST_AT_ONCE // logits.shape[-1])
        for row, place in zip(rows.split(size), places.split(size), strict=True):
            log_p = torch.log_softmax(logits[row, place - 1].float(), -1)
            token_log_p, p = log_p.gather(-1, ids[row, place, None])[:, 0], log_p.exp()
            mean = (p * log_p).sum(-1)
            variance = (p * log_p.square()).sum(-1) - mean.square()
            token_parts.append(token_log_p)
            normal.append((token_log_p - mean) / variance.clamp(min=LEAST_VARIANCE).sqrt())
        joined_parts = [torch.cat(parts).cpu().numpy().astype(np.float64) for parts in (token_parts, normal)]
    cuts = np.cumsum(counts)[:-1]
    return list(zip(*(np.split(part, cuts) for part in joined_parts), strict=True))


def _of_lowest(values: Float[np.ndarray, " tokens"]) -> float:
    """Minus the mean of the lowest fifth of the values, at least one; NaN if there are none."""
    if not len(values):
        return np.nan
    return -float(np.sort(values)[: max(1, int(LOWEST * len(values)))].mean())
