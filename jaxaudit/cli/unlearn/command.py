"""`jaxaudit unlearn`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass

from jaxaudit.cli.groups import (
    AUDIT,
    DATA,
    MODEL,
    MOST,
    OUTPUT,
    TRAINING,
    Images,
    Level,
    Network,
    Output,
    Recipe,
    failing,
)
from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import group, option
from jaxaudit.cli.own_model import NETWORKS, OF_TEXTS, OWN, parse_model
from jaxaudit.cli.parsers import is_texts, parse_hidden, parse_names, parse_tokens, share_check

USUAL = ("retraining", "amnesiac", "fisher")
VARIANTS = ("golatkar", "paper", "becker-code")


OF_A_MODEL = (
    *("fisher", "fine-tuning", "gradient-ascent", "negative-gradient", "scrub", "ssd"),
    *("gradient-difference", "npo", "simnpo", "rmu"),
)
"""Methods that are functions of a trained model; `make_methods` makes them."""
USUAL_OF_TEXTS = ("retraining", "gradient-ascent", "gradient-difference", "npo", "simnpo")
METHODS = ("retraining", "amnesiac", *OF_A_MODEL)


@dataclass(frozen=True)
class UnlearnData(Images):
    """The records, and which of them to forget."""

    data: str | None = option(
        None, "The training set: NAME[@SPLIT] or a path, of texts a .jsonl. [default: digits]", names="data"
    )
    test_data: str | None = option(
        None,
        "Test records, never trained on; needed for texts. [default: the test split of --data, or its other records]",
        names="data",
    )
    per_class: int = option(100, "Training records per class (the first N); 0: all.", minimum=0, maximum=MOST)
    forget: str | None = option(
        None,
        "Texts: those to forget, a .jsonl, trained on beside those of --data; or KEY=VALUE, the lines of --data with "
        "this value, such as author=7.",
        metavar="FILE|KEY=VALUE",
        names="file",
        place=lambda text: text if is_texts(text) else None,
    )
    class_name: str | None = option(None, "The class whose records are forgotten. [default: 3, for digits]", "--class")
    fraction: float = option(
        0.5, "Fraction of the training records of --class to forget (the first ones).", check=share_check("fraction")
    )


@dataclass(frozen=True)
class UnlearnNetwork(Network):
    """The network."""

    model: str | None = option(
        None,
        f"The network: {NETWORKS}, {OF_TEXTS} for texts (layers and width), or {OWN}. [default: mlp; {OF_TEXTS} for "
        "texts]",
        check=parse_model,
        names="code",
    )
    tokens: str | None = option(
        None,
        "How texts become tokens: bytes, words (the 4,096 most frequent ones of all sets), or words:NUMBER. "
        "[default: bytes]",
        check=parse_tokens,
    )
    hidden: str | None = option(
        None, "Sizes of mlp's hidden layers. [default: 512,256,128; 128,64 without --data]", check=parse_hidden
    )


@dataclass(frozen=True)
class UnlearnAudit(Level):
    """The methods, and how they are judged."""

    methods: str | None = option(
        None,
        f"Methods to judge: {', '.join(METHODS)}. Retraining is always included, as the reference. [default: "
        f"{','.join(USUAL)}; {','.join(USUAL_OF_TEXTS)} for texts]",
        metavar="NAME,...",
        check=lambda text: parse_names(text, METHODS, "--methods"),
    )
    fisher_variant: str = option(
        VARIANTS[0],
        "fisher: noise as in Golatkar et al., in the paper's equation, or in the paper's code.",
        choices=VARIANTS,
    )
    alpha: float = option(3e-6, "fisher: strength of the noise.", check=share_check("alpha"))
    unlearn_epochs: int | None = option(
        None,
        "Epochs of the methods that train: all but amnesiac, fisher and ssd. [default: 10]",
        minimum=1,
        maximum=MOST,
    )
    unlearn_rate: float | None = option(
        None,
        "Their learning rate. [default: 0.01; gradient-ascent: 0.003, scrub: 0.0005; gradient-difference, npo, simnpo "
        "and rmu: 0.0002, by AdamW]",
        check=share_check("unlearn_rate"),
    )
    beta: float = option(
        0.95, "negative-gradient: weight of the loss of the remaining records.", check=share_check("beta")
    )
    ssd_alpha: float = option(
        10.0,
        "ssd: dampens parameters whose Fisher information is more than this times that of all records.",
        check=share_check("ssd_alpha"),
    )
    ssd_lambda: float = option(1.0, "ssd: the smaller, the more these are dampened.", check=share_check("ssd_lambda"))
    npo_beta: float = option(
        0.1,
        "npo: inverse temperature; the larger, the sooner the pull on a record ends.",
        check=share_check("npo_beta"),
    )
    simnpo_beta: float = option(4.5, "simnpo: inverse temperature.", check=share_check("simnpo_beta"))
    rmu_layer: str | None = option(
        None,
        "rmu: the activation to move, by its name in the network, such as block 1. [default: the middle one]",
        metavar="NAME",
    )
    rmu_coefficient: float = option(
        2.0, "rmu: length of the vector that activations are moved to.", check=share_check("rmu_coefficient")
    )
    seeds: int | None = option(
        None, "Models per method, one per seed. [default: 20; 10 without --data]", minimum=2, maximum=MOST
    )
    nonmembers: int | None = option(
        None,
        "Test records that membership attacks learn from; 0: no attack. [default: as many as training records; 0 for "
        "texts]",
        minimum=0,
    )
    attack_epochs: int | None = option(
        None, "Training epochs of the membership attack. [default: 100; 20 without --data]", minimum=1, maximum=MOST
    )


@dataclass(frozen=True)
class UnlearnOutput(Output):
    """What is printed and written."""

    fail_on: tuple[str, ...] = failing("distinguishable", "not distinguishable", "inconclusive")


@dataclass(frozen=True)
class UnlearnOptions:
    """All options of the command."""

    data: UnlearnData = group(DATA, UnlearnData())
    model: UnlearnNetwork = group(MODEL, UnlearnNetwork())
    recipe: Recipe = group(TRAINING, Recipe(epochs=50, batch_size=32, learning_rate=0.1, optimizer="sgd"))
    audit: UnlearnAudit = group(AUDIT, UnlearnAudit())
    output: UnlearnOutput = group(OUTPUT, UnlearnOutput())


UNLEARN = Command(
    "unlearn",
    UnlearnOptions,
    doc="""Did unlearning work? (Becker & Liebig 2022)

    Trains models, makes them forget some records by each method, and compares efficacy, accuracy and membership attacks
    with those of models retrained without the records. A method that forgets too little or too much is distinguishable
    from retraining.

    Examples:

    `jaxaudit unlearn` (embedded digits, about a minute)

    `jaxaudit unlearn --data mnist --class 3 --fraction 0.5 --methods retraining,amnesiac,fisher --seeds 20`

    `jaxaudit unlearn --data mine.npz --class cat --fraction 1 --fisher-variant paper --alpha 1e-9 --out run`

    `jaxaudit unlearn --methods fine-tuning,gradient-ascent,negative-gradient,scrub,ssd --seeds 20`

    `jaxaudit unlearn --data retain.jsonl --forget forget.jsonl --test-data test.jsonl --tokens words --optimizer adamw
    --learning-rate 0.003 --epochs 8 --methods gradient-difference,npo,simnpo,rmu --seeds 16` (texts)
    """,
    first=("data", "class_name", "methods"),
)
