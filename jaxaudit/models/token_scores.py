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

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jaxaudit.models.language_model import Encoded, LanguageModel
from jaxaudit.models.pretrained import pytorch

SCORES = ("loss", "min_k", "min_k_plus_plus", "zlib")
LOWEST = 0.2
"""The share of tokens that Min-K% averages: those that the model found least likely."""
LEAST_VARIANCE = 1e-6
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

    The two Min-K% leave out the last scored token, which ends an answer.

    Args:
        model: its weights are loaded here, and dropped at the end.
        records: of `model.encode`, none longer than `model.positions`.
        progress: told the tokens of each batch that is done.

    Returns:
        a number a record of each of `SCORES`; NaN where there is no token to score.
    """
    scores = {name: np.full(len(records), np.nan) for name in SCORES}
    module = model.load()
    for rows in _batches(records, model.vocabulary):
        batch = [records[row] for row in rows]
        for row, (token_log_probs, normal) in zip(rows, _scored(module, batch), strict=True):
            text = model.decode(records[row].tokens[records[row].start :])
            loss = -token_log_probs.mean() if len(token_log_probs) else np.nan
            packed = loss / len(zlib.compress(text.encode("utf-8", "surrogatepass")))
            numbers = (loss, _of_lowest(token_log_probs[:-1]), _of_lowest(normal[:-1]), packed)
            for name, number in zip(SCORES, numbers, strict=True):
                scores[name][row] = number
        progress(sum(len(record.tokens) for record in batch))
    return scores


def _batches(records: Sequence[Encoded], vocabulary: int) -> Iterator[Int[np.ndarray, " batch"]]:
    """Indices of records of similar lengths, the longest first: what does not fit into memory fails at once."""
    lengths = np.array([len(record.tokens) for record in records])
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    most = min(MOST_TOKENS, MOST_LOGITS // vocabulary)
    while len(order):
        size = max(1, most // int(lengths[order[0]]))
        yield order[:size]
        order = order[size:]


def _scored(
    module: Any, batch: Sequence[Encoded]
) -> list[tuple[Float[np.ndarray, " tokens"], Float[np.ndarray, " tokens"]]]:
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
