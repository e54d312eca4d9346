"""Causal language models from a folder: their scores beside a slow twin, and the folders that are refused."""

import json
import shutil
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.language_models import END, POSITIONS, save_model

from jaxaudit import read_weights
from jaxaudit.data import safetensors_bytes
from jaxaudit.errors import InputError
from jaxaudit.models import LanguageModel, causal, language_model, pretrained
from jaxaudit.models.causal import SCORES

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the torch extra)")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")

PROMPTS = ["Question: Who wrote it?\nAnswer: ", "Who", "", "Question: é?\nAnswer: ", "Q: "] * 3
ANSWERS = [("nobody " * (row % 4) + "did it 日")[: 30 - row] for row in range(len(PROMPTS))]
# A token of both a prompt and its answer: the blank of the first prompt, half a letter, an accent, several blanks.
PROMPTS += ["Question: Who wrote it?\nAnswer: ", "日", "e", "a b"]
ANSWERS += ["nobody did", "本 é", "\u0301 x", "  c"]


def twin(module: Any, tokenizer: Any, prompt: str, answer: str, start: str = "characters") -> dict[str, float]:
    """One record alone, token by token, in float64 where the model's own numbers allow."""
    tokens = tokenizer(prompt + answer)["input_ids"]
    first = len(tokenizer(prompt)["input_ids"]) if prompt else 1
    if start == "characters" and prompt:
        # A character of a token is a byte; the special token at the beginning has none.
        names = tokenizer.convert_ids_to_tokens(tokens)
        bytes_so_far = np.cumsum([0 if name == END else len(name) for name in names])
        first = int(np.flatnonzero(bytes_so_far > len(prompt.encode()))[0])
    if prompt and tokens[-1] != tokenizer.eos_token_id:
        tokens = [*tokens, tokenizer.eos_token_id]
    with torch.no_grad():
        logits = module(torch.tensor([tokens])).logits[0].double().numpy()
    own, normal = [], []
    for place in range(first, len(tokens)):
        row = logits[place - 1] - logits[place - 1].max()
        log_p = row - np.log(np.exp(row).sum())
        mean = (np.exp(log_p) * log_p).sum()
        spread = np.sqrt(max((np.exp(log_p) * (log_p - mean) ** 2).sum(), 1e-6))
        own.append(log_p[tokens[place]])
        normal.append((own[-1] - mean) / spread)
    # The last token, the end of an answer, counts for the loss alone.
    count = max(1, int(0.2 * (len(own) - 1)))
    loss = -np.mean(own)
    text = tokenizer.decode(tokens[first:], skip_special_tokens=True)
    lowest = [-np.mean(sorted(each[:-1])[:count]) for each in (own, normal)]
    numbers = (loss, *lowest, loss / len(zlib.compress(text.encode())))
    return {name: float(number) for name, number in zip(SCORES, numbers, strict=True)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "gpt2"
    save_model(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "begin", "start"),
    [("gpt2", False, "characters"), ("llama", True, "characters"), ("gpt2", False, "prompt-tokens")],
)
def test_scores_are_those_of_a_loop_whatever_the_batches(
    kind: str, begin: bool, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))
    module = save_model(tmp_path, kind, begin=begin, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model = LanguageModel(tmp_path)
    assert (model.positions, model.precision) == (POSITIONS, "float32")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    encoded = model.encode(PROMPTS, ANSWERS, start)
    assert any(each.tokens[0] == tokenizer.eos_token_id for each in encoded) is begin
    told: list[int] = []
    found = causal.token_scores(model, encoded, told.append)
    assert sum(told) == sum(len(each.tokens) for each in encoded)
    wanted = [twin(module, tokenizer, *record, start) for record in zip(PROMPTS, ANSWERS, strict=True)]
    for name in SCORES:
        np.testing.assert_allclose(found[name], [each[name] for each in wanted], rtol=1e-5, atol=1e-5)
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "another"))
    monkeypatch.setattr(causal, "MOST_TOKENS", 40)
    monkeypatch.setattr(causal, "MOST_AT_ONCE", 1000)
    again = causal.token_scores(model, encoded)
    for name in SCORES:
        np.testing.assert_allclose(again[name], found[name], rtol=1e-5, atol=1e-5)


class OfLittleMemory(LanguageModel):
    """A model on a machine where a batch of more than so many tokens raises what PyTorch raises."""

    most = 60
    error: Exception = RuntimeError("[enforce fail at alloc_cpu.cpp:113] DefaultCPUAllocator: can't allocate memory")

    def load(self) -> Any:
        module = super().load()

        def refuse(_: Any, __: Any, how: dict[str, Any]) -> None:
            self.sizes.append(tuple(how["input_ids"].shape))
            if how["input_ids"].numel() > self.most:
                raise self.error

        module.register_forward_pre_hook(refuse, with_kwargs=True)
        return module

    sizes: ClassVar[list[tuple[int, int]]] = []


def test_a_batch_that_does_not_fit_into_memory_is_halved_and_so_are_those_after_it(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # States an accelerator of its own, whose memory is not PyTorch's to empty.
    pytest.importorskip("torchax", reason="torchax is not installed (the torch extra)")
    model, small = LanguageModel(saved), OfLittleMemory(saved)
    encoded = model.encode(PROMPTS, ANSWERS)
    found, told = causal.token_scores(model, encoded), list[int]()
    for number, error in enumerate((small.error, MemoryError(), torch.OutOfMemoryError("CUDA out of memory."))):
        monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / str(number)))
        small.error, small.sizes[:] = error, []
        told.clear()
        again = causal.token_scores(small, encoded, told.append)
        for name in SCORES:
            np.testing.assert_allclose(again[name], found[name], rtol=1e-5, atol=1e-5)
        assert sum(told) == sum(len(each.tokens) for each in encoded)
        failed = [rows * tokens > small.most for rows, tokens in small.sizes]
        assert any(failed)
        assert not any(failed[failed.index(False) :])


def test_a_record_alone_that_does_not_fit_is_named_by_its_length_and_other_errors_pass(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path))
    small = OfLittleMemory(saved)
    encoded = small.encode(PROMPTS, ANSWERS)
    small.most = 10
    with pytest.raises(
        InputError, match=f"a record of {max(len(each.tokens) for each in encoded)} tokens does not fit"
    ):
        causal.token_scores(small, encoded)
    small.error = RuntimeError("another one")
    with pytest.raises(RuntimeError, match="another one"):
        causal.token_scores(small, encoded)


def test_scoring_that_was_stopped_goes_on_from_its_last_batch_with_the_same_numbers(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(causal, "MOST_TOKENS", 40)
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "whole"))
    model, told = LanguageModel(saved), list[int]()
    encoded = model.encode(PROMPTS, ANSWERS)
    found = causal.token_scores(model, encoded, told.append)
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "stopped"))
    for batches in (1, 2, len(told)):
        again = list[int]()

        def stop(tokens: int, told_again: list[int] = again, most: int = batches) -> None:
            told_again.append(tokens)
            if len(told_again) > most:
                raise KeyboardInterrupt

        if batches < len(told):
            with pytest.raises(KeyboardInterrupt):
                causal.token_scores(model, encoded, stop)
        else:
            stopped = causal.token_scores(model, encoded, again.append)
            for name in SCORES:
                np.testing.assert_array_equal(stopped[name], found[name])
            assert again[1:] == told[-len(again) + 1 :]
            assert 1 < len(again) < len(told)


def test_a_text_is_scored_once_by_a_model_and_anew_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAXAUDIT_CACHE", str(tmp_path / "cache"))
    save_model(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "moved")
    told: list[int] = []
    model, moved = LanguageModel(tmp_path / "model"), LanguageModel(tmp_path / "moved")
    encoded = model.encode(PROMPTS, ANSWERS)
    first = causal.token_scores(model, encoded[:5], told.append)
    told.clear()
    again = causal.token_scores(moved, encoded[:5], told.append)
    before = sum(len(each.tokens) for each in encoded[:5])
    assert told == [before]
    for name in SCORES:
        np.testing.assert_array_equal(first[name], again[name])
    # One record more is one record's work, and so is another beginning of the answer.
    other = encoded[0]._replace(start=encoded[0].start + 1)
    told.clear()
    causal.token_scores(model, [*encoded[:6], other], told.append)
    assert told == [before, len(encoded[5].tokens) + len(other.tokens)]
    having(BIAS, np.ones(96, np.float32))(tmp_path / "moved")
    changed_models = (LanguageModel(tmp_path / "model", "bfloat16"), LanguageModel(tmp_path / "moved"))
    for count, changed in enumerate(changed_models, 1):
        assert len(list((tmp_path / "cache").iterdir())) == count
        told.clear()
        causal.token_scores(changed, encoded[:5], told.append)
        assert told == [before]
    # No text, and no token of one, is kept.
    for path in (tmp_path / "cache").iterdir():
        with np.load(path, allow_pickle=False) as archive:
            assert set(archive.files) == {"digests", "values"}
            assert archive["values"].shape[1] == len(SCORES)


def test_what_is_scored_begins_behind_the_prompt_and_ends_an_answer(saved: Path):
    model = LanguageModel(saved)
    (answer, text, nothing, ended) = model.encode(["ab", "", "ab", "ab"], ["cd", "abcd", "", f"c{END}"])
    assert model.decode(answer.tokens[answer.start :]) == "cd"
    assert (answer.start, answer.tokens[-1]) == (2, 0)
    assert (text.start, len(text.tokens), len(nothing.tokens)) == (1, 4, 3)
    assert ended.tokens.count(0) == 1
    (special,) = model.encode(["<end>"], ["<end>a"])
    assert model.decode(special.tokens[special.start :]) == "a"
    # The tokenizer joins the blank at the end of a prompt with the word behind it.
    word, theirs = (model.encode(["Answer: "], ["nobody"], how)[0] for how in ("characters", "prompt-tokens"))
    assert [model.decode(each.tokens[each.start :]) for each in (word, theirs)] == [" nobody", ""]
    found = causal.token_scores(model, [answer, *model.encode(["", ""], ["a", ""])])
    for name in SCORES:
        assert np.isfinite(found[name]).tolist() == [True, False, False]


@pytest.mark.parametrize("behind", [1, 3])
def test_tokens_behind_a_text_move_no_answer(behind: int, saved: Path, tmp_path: Path):
    save_model(tmp_path / "behind", behind=behind)
    plain, model = LanguageModel(saved), LanguageModel(tmp_path / "behind")
    usual, found = (each.encode(PROMPTS, ANSWERS) for each in (plain, model))
    assert [each.start for each in found] == [each.start for each in usual]
    for mine, each, prompt in zip(usual, found, PROMPTS, strict=True):
        own = mine.tokens[:-1] if prompt else mine.tokens
        assert each.tokens[: len(own)] == own
        assert each.tokens[len(own) :] == (0,) * behind


def test_a_precision_is_the_stated_one_or_the_one_asked_for(tmp_path: Path):
    save_model(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"float32"', '"bfloat16"'))
    numbers = {}
    for asked, wanted in ((None, "bfloat16"), ("float32", "float32")):
        model = LanguageModel(tmp_path, asked)
        assert model.precision == wanted
        assert str(model.load().dtype) == f"torch.{wanted}"
        numbers[wanted] = causal.token_scores(model, model.encode(PROMPTS, ANSWERS))["loss"]
    assert (numbers["bfloat16"] != numbers["float32"]).all()
    np.testing.assert_allclose(numbers["bfloat16"], numbers["float32"], rtol=0.05)
    config.write_text(config.read_text().replace('"bfloat16"', '"int8"'))
    with pytest.raises(InputError, match=r"`precision` must be one of .*; got 'int8'"):
        LanguageModel(tmp_path)


def test_nothing_is_downloaded_and_no_code_is_run(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import socket

    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("it asked the network"))
    monkeypatch.setattr(socket.socket, "connect", lambda *_, **__: pytest.fail("it asked the network"))
    folder = shutil.copytree(saved, tmp_path / "own")
    (folder / "modeling_own.py").write_text("raise SystemExit('run')")
    (folder / "tokenization_own.py").write_text("raise SystemExit('run')")
    assert LanguageModel(folder).load().training is False


def edited(file: str, **entries: Any) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        path = folder / file
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))

    return edit


def without(file: str) -> Callable[[Path], object]:
    return lambda folder: (folder / file).unlink()


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def having(name: str, values: Any) -> Callable[[Path], object]:
    """These values as the weight of this name."""

    def change(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(safetensors_bytes({**read_weights(folder), name: values}))

    return change


def used(folder: Path) -> object:
    model = LanguageModel(folder)
    return model.encode(["é" * 50], ["é x"]), model.load()


TEXT = {"Sequence": {"id": "A", "type_id": 0}}
TWICE = {"type": "TemplateProcessing", "single": [TEXT, TEXT], "pair": [TEXT], "special_tokens": {}}
DOUBLING = {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "é"}, "content": "éé"}] * 40}
DOUBLED = {"id": 400, "content": "é", "normalized": True, "special": False}
DOUBLED |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
# It tries every way to cut a row of é in two.
CATASTROPHIC = {"type": "Split", "pattern": {"Regex": "(é+)+$"}, "behavior": "Isolated", "invert": False}


def bidirectional(folder: Path) -> None:
    """A network that sees tokens behind, of small random weights: no fine-tune of it would look so nearly causal."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.BertLMHeadModel(transformers.BertConfig(vocab_size=300, **sizes)).save_pretrained(folder)


in_config, in_tokenizer = partial(edited, "config.json"), partial(edited, "tokenizer.json")
MANY = [f"<{number}>" for number in range(20_000)]
BIAS = "transformer.h.0.attn.c_attn.bias"
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "code": (in_config(auto_map={"AutoModelForCausalLM": "modeling_own.Net"}), "never run here"),
    "code of a tokenizer": (edited("tokenizer_config.json", auto_map={"AutoTokenizer": ["own.T", None]}), "never run"),
    "quantised": (in_config(quantization_config={"bits": 4}), "quantised weights"),
    "eight bits": (having("transformer.wte.weight", np.ones((300, 32), np.int8)), "has whole numbers (int8)"),
    "an adapter": (lambda folder: (folder / "adapter_config.json").write_text("{}"), "needs the two merged"),
    "many classes": (in_config(num_labels=2**24), "num_labels of more than"),
    "many positions": (in_config(n_positions=10**6), "numbers, and the network has"),
    "a regular expression without end": (in_tokenizer(pre_tokenizer=CATASTROPHIC), "its tokenizer fails"),
    "a text that doubles": (in_tokenizer(normalizer=DOUBLING), "many times longer"),
    "an added token that doubles": (in_tokenizer(normalizer=DOUBLING, added_tokens=[DOUBLED]), "many times longer"),
    "a text twice": (in_tokenizer(post_processor=TWICE), "does not write each text once"),
    "many tokens of its own": (edited("tokenizer_config.json", extra_special_tokens=MANY), "added tokens"),
    "an end that the model does not know": (
        edited("tokenizer_config.json", eos_token="<new>"),
        "has the token 288, and the model knows 288",
    ),
    "a tokenizer of bytes": (edited("tokenizer_config.json", tokenizer_class="ByT5Tokenizer"), "does not read"),
    "heads below 0": (in_config(n_head=-2), "cannot compute"),
    "an encoder's outputs": (in_config(add_cross_attention=True), "outputs of an encoder"),
    "a network that sees tokens behind": (bidirectional, "by those behind it"),
    "pickled": (pickled, "may be pickles"),
    "a pickle by another name": (lambda folder: torch.save({}, folder / "model.safetensors"), "is not a complete"),
    "no weights": (without("model.safetensors"), "has no model.safetensors"),
    "cut": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]),
        "is not a complete safetensors file",
    ),
    "NaN": (having(BIAS, np.full(96, np.nan, np.float32)), "NaN or infinite"),
    "a tokenizer of another model": (in_config(vocab_size=100), "and the model knows 100"),
    "no tokenizer": (without("tokenizer.json"), "has no tokenizer.json"),
    "a broken tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer cannot be read"),
    "no configuration": (without("config.json"), "has no config.json"),
    "a cut configuration": (lambda folder: (folder / "config.json").write_text("{"), "not JSON"),
    "a list": (lambda folder: (folder / "config.json").write_text("[1]"), "no configuration of a network"),
    "another task": (in_config(architectures=["GPT2ForSequenceClassification"]), "no causal language"),
    "another kind": (in_config(model_type="vit"), "is of vit, which transformers"),
    "huge": (in_config(n_embd=2**20, vocab_size=2**24), "GiB"),
    "many layers": (in_config(n_layer=10**6), "parts"),
    "fewer layers": (in_config(n_layer=1), "do not fit GPT2LMHeadModel: unexpected"),
    "more layers": (in_config(n_layer=3), "do not fit GPT2LMHeadModel: missing"),
    "another size": (having(BIAS, np.ones(3, np.float32)), "do not fit GPT2LMHeadModel: of another shape: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_folder_must_not_be_is_refused(name: str, saved: Path, tmp_path: Path):
    edit, words = REFUSED[name]
    folder = shutil.copytree(saved, tmp_path / "saved")
    edit(folder)
    with pytest.raises(InputError) as caught:
        used(folder)
    assert words in str(caught.value)


def test_sizes_are_bounded(saved: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InputError, match=r"has no config\.json"):
        LanguageModel(saved / "config.json")
    monkeypatch.setattr(language_model, "LARGEST_TOKENIZER", 100)
    with pytest.raises(InputError, match="is it the file that its name says"):
        LanguageModel(saved)
    monkeypatch.setattr(language_model, "MAX_BYTES", 1000)
    monkeypatch.setattr(language_model, "LARGEST_TOKENIZER", 10**6)
    with pytest.raises(InputError, match="memory"):
        LanguageModel(saved)
    monkeypatch.setattr(pretrained, "LONGEST", 10)
    with pytest.raises(InputError, match="has more than 10 bytes"):
        LanguageModel(saved)
