"""What to do about a verdict: the shadow models of an audit are trained by it, or are there in a bank."""

from typing import NamedTuple

from jaxaudit.metrics.checks import RECIPE


class Advice(NamedTuple):
    """Parts of sentences, with options that have an effect in the audit that they are said in.

    Attributes:
        recipe: how to get shadow models that fit their training data better.
        power: the command that says how many records are needed.
        unused: what else a target's outputs may be on.
        holdout: how to get a holdout test.
        more_models: how to get more shadow models.
    """

    recipe: str
    power: str
    unused: str
    holdout: str
    more_models: str


TRAINED = Advice(
    RECIPE,
    "`jaxaudit power`",
    "on the calibration set (--calibration-target) or on others (--reference)",
    "use a holdout (--holdout)",
    "train more of them (--shadow-models, --holdout-shadow-models)",
)
BANKED = Advice(
    "fill another bank with models that are trained longer, at another learning rate, or are of another network",
    "`jaxaudit power --shadows`",
    "on the calibration set (--calibration-target)",
    "plan a bank with a holdout (`jaxaudit shadows plan --holdout`)",
    "plan a bank of more models (`jaxaudit shadows plan --models`)",
)
