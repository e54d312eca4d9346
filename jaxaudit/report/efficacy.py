"""The content of an `efficacy` run for the terminal and the page, from its result alone."""

from collections.abc import Sequence

from rich.cells import chop_cells

from jaxaudit.audits.efficacy.result import CONTRACTED, EfficacyResult, WeightsExposure, check_efficacy_result
from jaxaudit.audits.finding import plural
from jaxaudit.errors import visible
from jaxaudit.kernels.likelihoods import SEQUENCE
from jaxaudit.report.kinds import Run, RunKind, record_type
from jaxaudit.report.numbers import precise
from jaxaudit.report.page import Answer, ColumnsByHead, PageTable, RunContent, table_of, tables_of_first
from jaxaudit.report.sources import terms

ROOM, LEAST_ROOM = 58, 9
"""Terminal columns that the names of weights share, and the least that each needs for its numbers."""


def efficacy_part(run: Run[EfficacyResult]) -> RunContent:
    result, paths = run.result, list(run.result.paths.values())
    of_texts = result.likelihood == SEQUENCE.name
    means = (f"Log-likelihood of a record: {result.log_likelihood}.",) if of_texts else ()
    converted = (
        "The network is written in PyTorch. In JAX, its outputs on these records differ by "
        f"{result.conversion_error or 0:.0e} of their size at most.",
    )
    return RunContent(
        f"How much do the weights still expose of {plural(result.records_measured, 'record')}?",
        "Measured by the Fisher information of the weights about the records: the mean squared norm of each record's "
        "gradient. It is small where the weights fit the records, as those that they were trained on, and large for "
        "weights that never saw them. Efficacy is 1 / information. Compare it with that of weights whose training is "
        f"known.{''.join(f' {name}' for name in means)}",
        (_answer(result),),
        (
            _weights(result),
            _layers_side_by_side(result),
            *_records(result),
        ),
        (
            "Efficacy is 1 / information, and never above its bound. Information is the mean squared norm of the "
            "gradients: small where the weights fit the records, as those that they were trained on, and large for "
            "weights that never saw them. So efficacy is large after training, and forgetting should make it small.",
            f"{paths.count(CONTRACTED)} of {len(paths)} parameter tensors: per-example norms without materialising "
            "per-example gradients.",
            *(() if result.conversion_error is None else converted),
            *means,
        ),
        terms("efficacy", "bound of the efficacy", "Fisher information"),
        ("Efficacy is measured, not tested: it has no error rate.",),
    )


def _answer(result: EfficacyResult) -> Answer:
    judged = result.models[0]
    mean = judged.mean_log_probability
    facts = () if mean is None else (("Mean log-probability of a label", precise(mean)),)
    return Answer(visible(judged.name), result.finding, "efficacy", precise(judged.efficacy), "", facts)


def _accuracy(model: WeightsExposure) -> str:
    return "none" if model.accuracy is None else f"{model.accuracy:.1%}"


def _weights(result: EfficacyResult) -> PageTable:
    """The numbers of all weights, the judged ones first."""
    judged = result.models[0]
    columns: ColumnsByHead = {
        "weights": ("name", visible),
        "efficacy": ("efficacy", precise),
        "information": ("information", precise),
        "bound": ("bound", precise),
    }
    if judged.accuracy is not None:
        columns["accuracy"] = _accuracy
    return table_of("Weights", result.models, columns, ("weights",), on="both", bare=True)


def _layers_side_by_side(result: EfficacyResult) -> PageTable:
    heads = zip(result.models, _columns(result.models), strict=True)
    columns = {
        "layer": visible,
        **{head: lambda layer, of=model.layers: precise(of[layer].information) for model, head in heads},
    }
    layers = result.models[0].layers
    return table_of("Information by layer", layers, columns, ("layer",), on="both")


def _records(result: EfficacyResult) -> tuple[PageTable, ...]:
    """The records that the judged weights fit best (smallest gradients), with a column for each set of weights."""
    judged, heads = result.models[0].name, _columns(result.models)
    columns: ColumnsByHead = {"record": ("index", str)}
    if any(record.class_name for record in result.records):
        columns["class"] = ("class_name", visible)
    for model, head in zip(result.models, heads, strict=True):
        columns[head] = lambda record, name=model.name: precise(record.information[name])
    title = "The {} records that the weights fit best, with their information (squared gradient norm)"
    ranked = sorted(result.records, key=lambda record: record.information[judged])
    return tables_of_first(title, ranked, columns, ("class",))


def _columns(models: Sequence[WeightsExposure]) -> tuple[str, ...]:
    """The names of weights, long ones broken into lines, so that all fit on a terminal."""
    room = max(LEAST_ROOM, ROOM // len(models) - 2)
    return tuple("\n".join(chop_cells(visible(model.name), room)) for model in models)


EFFICACY = RunKind("efficacy", record_type("efficacy", EfficacyResult), efficacy_part, check_efficacy_result)
