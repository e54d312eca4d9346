"""`jaxaudit efficacy`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from pathlib import Path

from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import DATA, MODEL, again, option, recipe_option, refuse_options
from jaxaudit.cli.own_code import NETWORKS, OWN, PRETRAINED, parse_judged, pretrained_config
from jaxaudit.cli.parsers import is_texts, parse_reference, parse_template
from jaxaudit.cli.shared_options import MOST, Images, Network, Output, Seeded
from jaxaudit.errors import InputError


@dataclass(frozen=True)
class EfficacyOptions(Images, Network, Seeded, Output):
    """All options of the command."""

    data: str | None = option(
        DATA,
        "The records in question: NAME[@SPLIT] or a path; of a language model a .jsonl, each line with prompt and "
        "answer, question and answer, or text. [default: some digits]",
        names="data",
    )
    classes: int | None = option(
        DATA,
        "Number of outputs of the network. [default: what a configuration says, else the number of classes in the "
        "data, or of labels per record]",
        minimum=1,
        maximum=MOST,
    )
    template: str | None = recipe_option(
        DATA,
        "Text before an answer of a .jsonl: {} is the prompt or question, \\n a line break. [default: a prompt as it "
        "is; a question as 'Question: {}\\nAnswer: ']",
        check=parse_template,
    )
    images: str | None = again(Images, "images", "none,color")
    model: str | None = option(
        MODEL,
        f"The network: {NETWORKS}, {OWN}, {PRETRAINED}, or the folder of a causal language model of "
        "transformers and its tokenizer.",
        check=parse_judged,
        names="code",
    )
    params: Path | None = option(
        MODEL,
        "The weights: .safetensors, or a folder of save_pretrained. [default: those in the folder that --model names]",
        names="file",
    )
    reference: tuple[str, ...] = option(
        MODEL,
        "Reference weights of the same network, as NAME=PATH (of a language model NAME=FOLDER), or untrained: new "
        "initial weights from the seed. Repeatable.",
        default=(),
        metavar="NAME=PATH",
        check=parse_reference,
        names="file",
        place=lambda text: parse_reference(text)[1],
    )
    hidden: str | None = again(Network, "hidden", "512,256,128")


def _check_together(options: EfficacyOptions) -> None:
    # A folder contains weights; a missing path is reported by its own option, not as missing weights.
    config = pretrained_config(options.model)
    config_folder = config if config and not config.is_file() else None
    values = {"--params": options.params or config_folder, "--model": options.model}
    values["--data"] = options.data
    missing = [flag for flag, value in values.items() if value is None]
    if missing and len(missing) < len(values):
        raise InputError(
            f"{', '.join(values)} go together, the weights, their network and the records: also give "
            f"{' and '.join(missing)}; without all of them the command runs an example."
        )
    if not is_texts(options.data):
        refuse_options({"--recipe template": options.template}, "is of texts (--data .jsonl)")


EFFICACY = Command(
    "efficacy",
    EfficacyOptions,
    doc="""How much do a model's weights still expose of some records? (Becker & Liebig 2022)

    Measures the exact Fisher information of the weights about the records: the mean squared norm of each record's
    gradient. Its inverse is the efficacy: training makes it large, and forgetting should make it small. Give reference
    weights that never saw the records: a single number cannot be interpreted.

    Examples:

    `jaxaudit efficacy` (embedded digits, one model with and one without them, less than a minute)

    `jaxaudit efficacy --model package.module:factory --params weights.safetensors --data forget.npz --classes 10`

    `jaxaudit efficacy --model saved_bert/ --data texts.npz` (a folder of transformers' `save_pretrained`; arrays
    `input_ids`, `attention_mask` and `y`, which the network gets by name)

    `jaxaudit efficacy --model unlearned/ --data forget.jsonl --reference base=base/` (language models; a record's
    gradient is that of the log-likelihood of its answer, or of its text)
    """,
    checks=(_check_together,),
    first=("data", "model", "params"),
)
