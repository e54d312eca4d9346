"""`jaxaudit scores lm` against open-unlearning's evaluation: `python -m bench.scores_lm FOLDER` (4 minutes).

FOLDER is `git clone https://github.com/locuslab/open-unlearning` at d3d7cf9. Its metrics are imported by path: the
packages around them, and what they import and do not need here (rouge_score, omegaconf), are replaced.

A GPT-2 from a configuration (4 layers, width 256, 16,384 tokens) scores 256 prompts with answers. `jaxaudit` is
`token_scores` as the command calls it, nothing kept: it reads and hashes the weights, and makes loss, min_k,
min_k_plus_plus and zlib in one pass. open-unlearning has its model in memory. Its loss alone is `evaluate_probability`
by `run_batchwise_evals`; its four scores are four attacks, by the faster of both forms of the model, as it is and
compiled. It has its strongest form: records sorted by length, the fastest size of a batch, `torch.inference_mode`, all
cores. First, all scores must agree.

Promised: no slower than the loss alone, and twice as fast as the four attacks. The limit is counted: the products of
all layers, the output layer's for scored tokens alone, each as one product of PyTorch.
"""

import argparse
import contextlib
import importlib
import io
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import torch
import transformers

from bench.adapters import save_base
from bench.harness import Bench, Claim, interleave, report
from jaxaudit.models.causal import SCORES, token_scores
from jaxaudit.models.language_model import Encoded, LanguageModel

TEXTS, WORDS, WIDTH, LAYERS, PROMPT, ANSWERS = 256, 16_384, 256, 4, 8, (8, 40)
ROUNDS, BATCHES = 3, (32, 128)
OURS, LOSS, COMPILED = "jaxaudit, four scores", "open-unlearning, loss", "open-unlearning, loss, compiled"
ATTACKS, LIMIT = "open-unlearning, four attacks", "counted products"
UNNEEDED, PACKAGES = ("rouge_score", "omegaconf"), ("evals", "evals.metrics", "evals.metrics.mia", "data", "data.utils")
CLASSES: dict[str, str] = dict(
    zip(SCORES, ("LOSSAttack", "MinKProbAttack", "MinKPlusPlusAttack", "ZLIBAttack"), strict=True)
)


def records_of_words() -> list[Encoded]:
    """Prompts and answers of words drawn at random, the longest first."""
    random = np.random.default_rng(0)
    counts = sorted(PROMPT + random.integers(*ANSWERS, TEXTS), reverse=True)
    return [Encoded(tuple(random.integers(1, WORDS, count).tolist()), PROMPT) for count in counts]


class OpenUnlearning:
    """The rival's functions, and the records in its form."""

    def __init__(self, checkout: Path, folder: Path, records: list[Encoded]) -> None:
        made = {name: ModuleType(name) for name in PACKAGES}
        for name, package in made.items():
            package.__path__ = [str(checkout / "src" / name.replace(".", "/"))]
        vars(made["data.utils"])["IGNORE_INDEX"] = -100
        with patch.dict(sys.modules, made | {name: MagicMock() for name in UNNEEDED}):
            self.utils = importlib.import_module("evals.metrics.utils")
            collators = importlib.import_module("data.collators")
            modules = {name: importlib.import_module(f"evals.metrics.mia.{name}") for name in CLASSES}
        self.attackers = {name: getattr(module, CLASSES[name]) for name, module in modules.items()}
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, pad_token="<end>")
        self.collate = collators.DataCollatorForSupervisedDataset(self.tokenizer, index="index")
        self.data: Any = []
        for index, record in enumerate(records):
            tokens = torch.tensor(record.tokens)
            labels = tokens.masked_fill(torch.arange(len(tokens)) < record.start, -100)
            self.data.append({"input_ids": tokens, "labels": labels, "index": index})

    def loss(self, module: Any, size: int) -> Any:
        loader = torch.utils.data.DataLoader(self.data, batch_size=size, collate_fn=self.collate)
        run, evaluate = self.utils.run_batchwise_evals, self.utils.evaluate_probability
        return quietly(partial(run, module, loader, evaluate, {}, ""))

    def attacks(self, module: Any, size: int) -> dict[str, list[float]]:
        """The scores of all records by each attack, in their order."""
        arguments = module, self.data, self.collate, size
        made = {name: attacker(*arguments, tokenizer=self.tokenizer) for name, attacker in self.attackers.items()}
        found = {name: quietly(attacker.attack)["value_by_index"] for name, attacker in made.items()}
        return {name: [score["score"] for score in by_index.values()] for name, by_index in found.items()}


def quietly(call: Callable[[], Any]) -> Any:
    """Without the rival's bars and lines, and in `torch.inference_mode`."""
    with torch.inference_mode(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return call()


def counted_products(tokens: int, scored: int) -> Callable[[], Any]:
    """A product for each linear layer's, of random numbers; of the output layer's, some thousand tokens at a time."""
    shapes = [(tokens, WIDTH, columns * WIDTH) for columns in (3, 1, 4)] + [(tokens, 4 * WIDTH, WIDTH)]
    shapes = shapes * LAYERS + [(min(2_048, scored - start), WIDTH, WORDS) for start in range(0, scored, 2_048)]
    pairs = [(torch.randn(rows, inner), torch.randn(inner, outer)) for rows, inner, outer in shapes]
    return lambda: [float(torch.mm(*pair)[0, 0]) for pair in pairs]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path, help="of open-unlearning")
    checkout = parser.parse_args().checkout
    os.environ["JAXAUDIT_CACHE"] = f"{os.devnull}/none"  # where nothing can be kept
    torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder:
        save_base(Path(folder), WIDTH, LAYERS, WORDS)
        records = records_of_words()
        rival = OpenUnlearning(checkout, Path(folder), records)
        plain = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
        forms = {LOSS: plain, COMPILED: torch.compile(plain, dynamic=True)}
        tried = {(form, size): partial(rival.loss, module, size) for form, module in forms.items() for size in BATCHES}
        seconds = {key: interleave("", {"": call}, 1).seconds[""][0] for key, call in tried.items()}
        best = {form: min(BATCHES, key=lambda size, form=form: seconds[form, size]) for form in forms}
        fastest = min(forms, key=lambda form: seconds[form, best[form]])
        contenders: dict[str, Callable[[], Any]] = {form: tried[form, size] for form, size in best.items()}
        contenders |= {
            ATTACKS: partial(rival.attacks, forms[fastest], best[fastest]),
            OURS: partial(token_scores, LanguageModel(Path(folder)), records),
        }
        found = contenders[OURS]()
        for name, scores in contenders[ATTACKS]().items():
            np.testing.assert_allclose(found[name], scores, rtol=1e-3, err_msg=name)
        tokens, unscored = sum(len(record.tokens) for record in records), sum(record.start for record in records)
        contenders[LIMIT] = counted_products(tokens, tokens - unscored)
        timings = interleave(f"{TEXTS} texts, {tokens:,} tokens", contenders, ROUNDS)
    claims = [Claim(f"{form} / {OURS}", timings.ratio(form, OURS), 1) for form in forms]
    claims.append(Claim(f"{ATTACKS} / {OURS}", timings.ratio(ATTACKS, OURS), 2))
    share = timings.ratio(LIMIT, OURS)
    notes = [
        f"records a batch: {', '.join(f'{form} {size}' for form, size in best.items())}; attacks: {fastest}",
        f"share of the counted products: {share.median:.2f} ({share.low:.2f}..{share.high:.2f})",
    ]
    report(Bench("scores_lm", [timings], claims, notes), ["torch", "transformers", "numpy"])


if __name__ == "__main__":
    main()
