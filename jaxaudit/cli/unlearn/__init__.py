"""`jaxaudit unlearn`: its options. Imports nothing heavy, so that `--help` is instant."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from jaxaudit.cli.harness import Command
from jaxaudit.cli.options import (
    AUDIT,
    DATA,
    MODEL,
    OWN_MODELS,
    ModelSource,
    again,
    option,
    recipe_option,
    training_option,
)
from jaxaudit.cli.own_code import NETWORKS, OF_TEXTS, OWN, parse_field, parse_model
from jaxaudit.cli.parsers import is_texts, parse_names, parse_outputs, parse_tokens, share_check
from jaxaudit.cli.shared_options import MOST, Images, Network, Optimizer, Output, RecipeFlags, Seeded, failing
from jaxaudit.errors import InputError

USUAL = ("retraining", "amnesiac", "fisher")

OF_A_MODEL = (
    *("fisher", "fine-tuning", "gradient-ascent", "negative-gradient", "scrub", "ssd"),
    *("gradient-difference", "npo", "simnpo", "rmu"),
)
"""Methods that are functions of a trained model; `make_methods` makes them."""
USUAL_OF_TEXTS = ("retraining", "gradient-ascent", "gradient-difference", "npo", "simnpo")
METHODS = ("retraining", "amnesiac", *OF_A_MODEL)


@dataclass(frozen=True)
class UnlearnOptions(Images, Network, RecipeFlags, Seeded, Output):
    """All options of the command."""

    goes_with: ClassVar = {Images: ModelSource.TRAINING}

    data: str | None = training_option(
        DATA,
        "The training set: NAME[@SPLIT] or a path, of texts a .jsonl. [default: digits]",
        names="data",
    )
    test_data: str | None = training_option(
        DATA,
        "Test records, never trained on; needed for texts. [default: the test split of --data, or its other records]",
        names="data",
    )
    per_class: int = training_option(
        DATA, "Training records per class (the first N); 0: all.", default=100, minimum=0, maximum=MOST
    )
    forget: str | None = training_option(
        DATA,
        "Texts: those to forget, a .jsonl, trained on beside those of --data; or KEY=VALUE, the lines of --data with "
        "this value, such as author=7.",
        metavar="FILE|KEY=VALUE",
        names="file",
        place=lambda text: text if is_texts(text) else None,
    )
    class_name: str | None = training_option(
        DATA,
        "The class whose records are forgotten. [default: 3, for digits]",
        "--class",
    )
    fraction: float = training_option(
        DATA,
        "Fraction of the training records of --class to forget (the first ones).",
        default=0.5,
        check=share_check("fraction"),
    )
    model: str | None = training_option(
        MODEL,
        f"The network: {NETWORKS}, {OF_TEXTS} for texts (layers and width), or {OWN}. [default: mlp; {OF_TEXTS} for "
        "texts]",
        check=parse_model,
        names="code",
    )
    tokens: str | None = recipe_option(
        MODEL,
        "How texts become tokens: bytes, words (the 4,096 most frequent ones of all sets), or words:NUMBER. "
        "[default: bytes]",
        check=parse_tokens,
    )
    methods: str | None = training_option(
        AUDIT,
        f"Methods to judge: {', '.join(METHODS)}. Retraining is always included, as the reference. [default: "
        f"{', '.join(USUAL)}; {', '.join(USUAL_OF_TEXTS)} for texts]",
        metavar="NAME,...",
        check=lambda text: parse_names(text, METHODS, "--methods"),
    )
    method_option: tuple[str, ...] = training_option(
        AUDIT,
        "Set an option of a method. fisher.variant: noise as in Golatkar et al. (golatkar, the default), in the "
        "paper's equation (paper), or in its code (becker-code). fisher.alpha: its strength (3e-6). "
        "negative-gradient.beta: weight of the loss of the remaining records (0.95). ssd.selection: parameters are "
        "dampened whose Fisher information is more than this times that of all records (10). ssd.strength: the "
        "smaller, the more (1). NAME.epochs and NAME.learning_rate, of methods that train (10 epochs at 0.01; "
        "gradient-ascent 0.003, scrub 0.0005; gradient-difference, npo, simnpo and rmu 0.0002, by AdamW). npo.beta "
        "(0.1), simnpo.beta (4.5): the larger, the sooner the pull on a record ends. rmu.layer: the activation to "
        "move, such as block 1 (the middle one). rmu.coefficient: length of what it is moved to (2). Repeatable.",
        default=(),
        metavar="NAME.FIELD=VALUE",
        check=partial(parse_field, "--method-option"),
    )
    seeds: int | None = training_option(
        AUDIT,
        "Models per method, one per seed. [default: 20; 10 without --data]",
        minimum=2,
        maximum=MOST,
    )
    nonmembers: int | None = training_option(
        AUDIT,
        "Test records that membership attacks learn from; 0: no attack. [default: as many as training records; 0 for "
        "texts]",
        minimum=0,
    )
    attack_epochs: int | None = training_option(
        AUDIT, "Training epochs of the membership attack. [default: 100; 20 without --data]", minimum=1, maximum=MOST
    )
    outputs: tuple[str, ...] = option(
        OWN_MODELS,
        "Score models of your own; nothing is trained. METHOD is a name of your choice; retrained are models retrained "
        "without the records to forget, better twice as many, and must be there; original are those before unlearning. "
        "The .npz has outputs of its models on the records to forget, forget [models, records, classes], and maybe "
        "accuracies [models] on the others: retain and test. Repeatable.",
        default=(),
        metavar="METHOD=FILE.npz",
        check=parse_outputs,
        names="file",
        of=ModelSource.OUTPUTS,
        place=lambda text: parse_outputs(text)[1],
    )
    labels: Path | None = option(
        OWN_MODELS,
        "--outputs: the class of each record to forget, from 0, a .npy.",
        metavar="FILE",
        names="file",
        of=ModelSource.OUTPUTS,
    )
    outputs_kind: Literal["auto", "probabilities", "logits"] = option(
        OWN_MODELS,
        "What the files of --outputs contain; log-probabilities are logits.",
        default="auto",
        of=ModelSource.OUTPUTS,
    )
    epochs: int | None = again(RecipeFlags, "epochs", 50)
    batch_size: int = again(RecipeFlags, "batch_size", 32)
    learning_rate: float = again(RecipeFlags, "learning_rate", 0.1)
    optimizer: Optimizer = again(RecipeFlags, "optimizer", "sgd")
    fail_on: tuple[Literal["distinguishable", "not-distinguishable", "inconclusive"], ...] = failing()

    @property
    def source(self) -> ModelSource:
        """The origin of the models that are judged."""
        return ModelSource.OUTPUTS if self.outputs else ModelSource.TRAINING


def _check_given(options: UnlearnOptions) -> None:
    if options.source is ModelSource.TRAINING:
        return
    names = [parse_outputs(text)[0] for text in options.outputs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"--outputs: two methods have the name {twice}; give each a name of its own.")
    for needed, is_there in (("retrained=FILE.npz", "retrained" in names), ("--labels", options.labels is not None)):
        if not is_there:
            raise InputError(f"--outputs needs {needed}; see `jaxaudit unlearn --help`.")


UNLEARN = Command(
    "unlearn",
    UnlearnOptions,
    {ModelSource.OUTPUTS: "unlearn.run:prepare_given"},
    doc="""Did unlearning work? (Becker & Liebig 2022)

    Trains models, makes them forget some records by each method, and compares efficacy, accuracy and membership attacks
    with those of models retrained without the records: a method that forgets too little or too much is distinguishable.
    With --outputs it trains nothing, and scores models of your own by what they say.

    Examples:

    `jaxaudit unlearn` (embedded digits, about a minute)

    `jaxaudit unlearn --outputs mine=mine.npz --outputs retrained=retrained.npz --labels labels.npy`
    (models of your own, of any library; trains nothing)

    `jaxaudit unlearn --data mnist --class 3 --fraction 0.5 --methods retraining,amnesiac,fisher --seeds 20`

    `jaxaudit unlearn --data retain.jsonl --forget forget.jsonl --test-data test.jsonl --recipe tokens=words
    --recipe optimizer=adamw --recipe learning-rate=0.003 --epochs 8 --methods
    gradient-difference,npo,simnpo,rmu --seeds 16` (texts)
    """,
    checks=(_check_given,),
    first=("data", "methods", "outputs"),
)
