"""`jaxaudit shadows`: its commands. Imports nothing heavy, so that `--help` is instant."""

from jaxaudit.cli.harness import Command
from jaxaudit.cli.sets import check_group_options
from jaxaudit.cli.shadows.options import OF_SCORES, AddOptions, ImportOptions, PlanOptions, ShowOptions, TrainOptions
from jaxaudit.errors import InputError


def _check_sets(options: PlanOptions | TrainOptions) -> None:
    data = options.data
    if data.query is None:
        raise InputError("--query is missing: the data in question.")
    if data.holdout is None and data.calibration is None and not data.coins:
        raise InputError(
            "--holdout or --calibration is missing: shadow models are trained on random records of them; with "
            "--holdout the test is exact."
        )
    if options.bank is None:
        raise InputError("--out is missing: the directory of the bank.")


def _check_direction(options: PlanOptions) -> None:
    models = options.models
    scored = models.outputs in OF_SCORES
    if scored != (models.direction is not None):
        raise InputError(
            f"--direction goes with --outputs {' and '.join(OF_SCORES)}, and is needed there: whether a lower or a "
            "higher number means that a model was trained on the record."
        )
    if scored and models.views > 1:
        raise InputError(f"--outputs {models.outputs} is one number for each record: leave out --views.")


def _check_model(options: AddOptions) -> None:
    count = len(options.files)
    if options.model is not None and count > 1:
        raise InputError(f"--model names one model, but {count} files were given: give one of them.")


PLAN = Command(
    "shadows plan",
    PlanOptions,
    "shadows.plan:write_planned_bank",
    """Deals the training sets of shadow models that your own script trains.

    Writes bank.json, labels.npy, membership.npy (a row per model, a column per record: the query set, the holdout, the
    calibration set) and seeds.npy. Your script trains model m on the records where row m is true, and saves its outputs
    on all records as outputs/00000.npy and so on. Repeated with more --models, it keeps those that are there.

    Examples:

    `jaxaudit shadows plan --query q.npz --holdout h.npz --calibration c.npz --models 40 --out bank`

    `jaxaudit shadows plan --query q.npz --calibration c.npz --outputs probabilities --recipe "ResNet-18" --out bank`

    `jaxaudit shadows plan --query 400 --holdout 400 --outputs score --direction lower --out bank`
    """,
    (_check_sets, lambda options: check_group_options(options.data), _check_direction),
    first=("query", "holdout", "bank"),
    compiles=False,
)
TRAIN = Command(
    "shadows train",
    TrainOptions,
    "shadows.train:prepare",
    """Trains shadow models and keeps their outputs, for any number of later audits.

    Models are trained many at once. Each one's outputs are written when its batch is done, so a stopped command
    continues where it was, and with more --models it keeps those that are there.

    Of texts, JSON Lines with prompt and answer, question and answer, or text, small language models are trained from
    nothing; a model's number of a record is the mean log-likelihood of its answer's tokens.

    Examples:

    `jaxaudit shadows train --query q.npz --holdout h.npz --calibration c.npz --model mlp --epochs 40 --out bank`

    `jaxaudit shadows train --query q.npz --holdout h.npz --model net.py:Net --models 128 --dry-run --out bank`

    `jaxaudit shadows train --query q.npz --holdout h.npz --patience 5 --designs guess,narrower --out bank`

    `jaxaudit shadows train --query q.npz --holdout h.npz --learner mine.py:learner --out bank`

    `jaxaudit shadows train --query q.jsonl --holdout h.jsonl --model gpt-2-64 --tokens words --out bank`
    """,
    (_check_sets, lambda options: check_group_options(options.data)),
    first=("query", "holdout", "bank"),
)
ADD = Command(
    "shadows add",
    AddOptions,
    "shadows.add:add",
    """Adds outputs of shadow models to a bank.

    Refuses outputs of other records, classes or kind, outputs that another model has already, and outputs that fit the
    training records of another model overwhelmingly better (right outputs are refused at most once in 100 times). Says
    so where outputs cannot show which model they are of, as those of models that hardly remember their records. Files
    that are in the bank already are skipped, so the command can be repeated.

    Examples:

    `jaxaudit shadows add bank outputs_00.csv outputs_01.csv`

    `jaxaudit shadows add bank rerun.npy --model 7`
    """,
    (_check_model,),
    compiles=False,
)
SHOW = Command(
    "shadows show",
    ShowOptions,
    "shadows.show:show_bank",
    """Shows what is in a bank, which tests it allows, and what is missing.

    Examples:

    `jaxaudit shadows show bank`

    `jaxaudit shadows show bank --json`
    """,
    compiles=False,
)
IMPORT = Command(
    "shadows import",
    ImportOptions,
    "shadows.from_tool:make_bank",
    """Makes a bank of the shadow models that another tool left.

    Reads the directory of tensorflow/privacy's mi_lira_2021 or of lira-pytorch (keep.npy and logits or scores of every
    experiment; with --labels where there is no y_train.npy), or the log_dir of Privacy Meter (memberships and signals;
    with --labels, but of language models, whose signals are read as log-likelihoods). All train on random records of
    one pool: rows that you choose at random, or a target's training records, are the query set, others the holdout,
    and the rest becomes the calibration set. A file of rows has numbers of records, or a boolean for each. Nothing
    there is changed.

    Examples:

    `jaxaudit shadows import exp/cifar10 --query-rows query.npy --holdout-rows holdout.npy --out bank`

    `jaxaudit shadows import demo_cifar10 --labels y_train.npy --out bank`
    """,
    compiles=False,
)
SHADOWS = (PLAN, TRAIN, ADD, SHOW, IMPORT)
