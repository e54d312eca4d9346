"""Unlearned models of your own, by their outputs: verdicts, and refusals."""

from typing import Any

import jax
import numpy as np
import pytest

import jaxaudit as ja
from jaxaudit.errors import InputError
from jaxaudit.report import run_kind

KEY = jax.random.key(21)
CLASSES = 3
LABELS = np.arange(30) % CLASSES
OWN = np.arange(CLASSES) == LABELS[:, None]


def side(models: int, own: float = 0.0, seed: int = 1, **others: Any) -> dict[str, Any]:
    """Outputs of models that are this much surer of each record's class, in nats."""
    forget = np.random.default_rng(seed).normal(size=(models, 30, CLASSES)) + own * OWN
    return {"forget": forget, **others}


def score(methods: dict[str, Any], retrained: Any, labels: Any = LABELS, **options: Any) -> ja.UnlearnOutputsAudit:
    audit = ja.score_unlearning(KEY, methods, retrained, labels, **options)
    run_kind("unlearn_outputs").check(audit.result)
    return audit


RETRAINED = side(16)
SURE = side(8, 8.0, 2)


def test_labels_of_other_records_are_noticed() -> None:
    methods, retrained = {"mine": side(8, 4.0, 2)}, side(16, 1.0)
    for labels, state in ((LABELS, "passed"), (np.random.default_rng(3).permutation(LABELS), "warning")):
        finding: Any = score(methods, retrained, labels).result["mine"].finding
        assert {check.state for check in finding.checks if check.name == "labels of these records"} == {state}
    one_class: Any = score({"mine": {"forget": -SURE["forget"]}}, RETRAINED, np.zeros(30, int)).result["mine"].finding
    assert "labels of these records" in {check.name for check in one_class.checks if check.state == "passed"}


def test_verdicts_and_what_they_say():
    alike, over = side(8, 0.0, 3), side(8, -8.0, 4)
    result = score({"sure": SURE, "alike": alike, "over": over}, RETRAINED, original=side(8, 9.0, 5)).result
    findings = {method.name: method.finding for method in result.methods}
    assert findings["retrained again"] is None
    assert findings["original"] is None
    verdicts = {name: finding.verdict for name, finding in findings.items() if finding}
    assert verdicts == {"sure": "distinguishable", "alike": "not distinguishable", "over": "distinguishable"}
    assert result.finding.verdict == "distinguishable"
    assert findings["over"]
    assert "over-forgotten" in findings["over"].sentence
    assert findings["sure"]
    assert "over-forgotten" not in findings["sure"].sentence
    alone = score({"alike": alike}, RETRAINED).finding
    assert alone.verdict == "inconclusive"
    assert any("original" in advice for advice in alone.would_change)


def test_methods_are_compared_with_equally_many_models_and_their_order_moves_nothing():
    many, few = side(12, 1.0, 6), side(5, 1.0, 7)
    both, other = (
        score({"many": many, "few": few}, RETRAINED).result,
        score({"few": few, "many": many}, RETRAINED).result,
    )
    assert both.compared == 5
    assert both["many"].challenge == other["many"].challenge
    first = {"forget": many["forget"][:5]}
    assert score({"many": first, "few": few}, RETRAINED).result["many"].u_lira == both["many"].u_lira
    assert any("`many`" in line and "5 of a method" in line for line in both.shortfalls)
    assert len(both["many"].scores["forgotten_accuracy"].values) == both["many"].models == 12


def test_more_retrained_models_than_two_a_model_move_nothing_and_are_told():
    """F of 8 models is capped by their number: 12 references would be capped elsewhere."""
    mine, retrained = side(8, 3.0, 6), side(20)
    few = {name: array[:16] for name, array in retrained.items()}
    more, same = (score({"mine": mine}, references).result for references in (retrained, few))
    assert more["mine"].challenge == same["mine"].challenge
    assert more["mine"].u_lira == same["mine"].u_lira
    assert any("`retrained`" in line and "16 retrained ones" in line for line in more.shortfalls)
    assert not any("the first models alone" in line for line in same.shortfalls)


@pytest.mark.parametrize(
    ("models", "retrained", "words"),
    [
        (3, 16, "`mine` has 3 models"),
        (1, 16, "`mine` has 1 model:"),
        (8, 7, "There are 7 retrained models"),
        (8, 1, "There is 1 retrained model:"),
    ],
)
def test_of_too_few_models_there_are_accuracies_and_what_is_needed(models: int, retrained: int, words: str):
    audit = score({"mine": side(models, 8.0, 2)}, side(retrained))
    method = audit.result["mine"]
    assert (audit.finding.verdict, method.challenge, method.u_lira, audit.u_lira, audit.sources) == (
        *("inconclusive", None, None, {}, ()),
    )
    accuracy = method.scores["forgotten_accuracy"]
    assert accuracy.interval
    assert accuracy.mean == 1
    assert np.isnan(accuracy.interval[0]) == (models == 1)
    assert any(words in line and "need" in line for line in audit.result.shortfalls)
    assert [check.state for check in audit.finding.checks if check.name == "enough models"] == ["failed"]


@pytest.mark.parametrize(("models", "verdict"), [(5, "inconclusive"), (6, "distinguishable")])
def test_six_models_a_side_can_show_a_difference_and_five_cannot(models: int, verdict: str):
    result = score({"mine": side(models, 50.0, 2)}, side(2 * models)).result
    assert result.finding.verdict == verdict
    assert any("no method can be distinguishable" in line for line in result.shortfalls) is (models == 5)


def test_a_method_of_too_few_models_keeps_no_other_one_from_being_judged():
    result = score({"three": side(3, 8.0, 9), "sure": SURE}, RETRAINED).result
    assert result.compared == 8
    assert [method.u_lira is None for method in result.methods] == [False, True, False]


def test_probabilities_and_their_logarithms_are_read_as_logits_are():
    def softmax(arrays: dict[str, Any]) -> np.ndarray:
        powers = np.exp(arrays["forget"])
        return powers / powers.sum(axis=2, keepdims=True)

    by_logits = score({"sure": SURE}, RETRAINED).result
    for change in (softmax, lambda arrays: np.log(softmax(arrays)), lambda arrays: 7 + arrays["forget"]):
        found = score({"sure": {"forget": change(SURE)}}, {"forget": change(RETRAINED)}).result
        assert found["sure"].u_lira == by_logits["sure"].u_lira
        assert found["sure"].challenge
        assert by_logits["sure"].challenge
        np.testing.assert_allclose(found["sure"].challenge.epsilon, by_logits["sure"].challenge.epsilon, atol=1e-9)


def test_probabilities_of_0_and_1_are_cut_and_said():
    certain = probabilities(8)["forget"] * (np.arange(CLASSES) != 2)
    certain /= certain.sum(axis=2, keepdims=True)
    finding = score({"mine": {"forget": certain}}, probabilities(16)).finding
    assert [check.state for check in finding.checks if check.name == "whole log-odds"] == ["warning"]


def probabilities(models: int) -> dict[str, np.ndarray]:
    return {"forget": np.random.default_rng(8).dirichlet(np.ones(CLASSES), (models, 30))}


def test_the_score_needs_both_accuracies():
    right, shares = np.linspace(0.3, 0.7, 16), np.linspace(0.8, 0.9, 16)
    mine = side(8, 1.0, 2, test=right[:8], retain=shares[:8])
    challenge = score({"mine": mine}, side(16, test=right, retain=shares)).result["mine"].challenge
    assert challenge
    assert challenge.score
    assert challenge.remaining_ratio
    assert challenge.test_ratio
    assert challenge.remaining_ratio == pytest.approx(shares[:8].mean() / shares[8:].mean())
    assert challenge.score.value == pytest.approx(
        challenge.quality.value * challenge.remaining_ratio * challenge.test_ratio
    )
    half = score({"mine": side(8, 1.0, 2, retain=shares[:8])}, side(16, retain=shares)).result["mine"].challenge
    assert half
    assert half.score is None
    assert half.remaining_ratio == challenge.remaining_ratio


BAD = np.where(np.arange(16 * 30 * 3).reshape(16, 30, 3) == 1000, np.nan, RETRAINED["forget"])


@pytest.mark.parametrize(
    ("methods", "retrained", "labels", "words"),
    [
        ({}, RETRAINED, LABELS, "no method"),
        *(({name: SURE}, RETRAINED, LABELS, "cannot be named") for name in ("retrained again", "Original", " ")),
        ({"mine": {"logits": SURE["forget"]}}, RETRAINED, LABELS, "has the arrays 'logits'"),
        ({"mine": SURE | {"retian": np.ones(8)}}, RETRAINED, LABELS, "typing error"),
        ({"mine": {"forget": SURE["forget"][0]}}, RETRAINED, LABELS, r"shape \(30, 3\)"),
        ({"mine": SURE}, {"forget": RETRAINED["forget"][:0]}, LABELS, r"\(0, .*1 to"),
        ({"mine": {"forget": SURE["forget"][:, :29]}}, RETRAINED, LABELS, r"\(8, 29, 3\) .*the 30 labelled records"),
        ({"mine": {"forget": SURE["forget"][:, :, :2]}}, RETRAINED, LABELS, "at least 3 classes"),
        ({"mine": {"forget": np.pad(SURE["forget"], ((0, 0), (0, 0), (0, 1)))}}, RETRAINED, LABELS, "has 4 classes"),
        ({"mine": SURE}, {"forget": BAD}, LABELS, "retrained.forget., model 11: 1 rows contain NaN"),
        ({"mine": {"forget": SURE["forget"].astype(str)}}, RETRAINED, LABELS, "and type <U"),
        ({"mine": {"forget": np.tile(1.0 * OWN, (8, 1, 1))}}, RETRAINED, LABELS, "predicted labels"),
        ({"mine": probabilities(8)}, RETRAINED, LABELS, "rounding alone"),
        ({"mine": {"forget": SURE["forget"][[0, 1, 2, 3, 4, 0]]}}, RETRAINED, LABELS, "models 0 and 5 have the same"),
        ({"mine": {"forget": RETRAINED["forget"][8:]}}, RETRAINED, LABELS, "outputs of model 8 of `retrained`"),
        *(
            ({"mine": SURE | {"test": test}}, RETRAINED, LABELS, "accuracy of each of the 8 models")
            for test in (np.ones(7), np.full(8, 90.0), np.ones(8, int), SURE["forget"])
        ),
        ({"mine": SURE}, RETRAINED, {"forget": LABELS}, "array of integers"),
        ({"mine": SURE}, RETRAINED, LABELS.astype(float), "array of integers"),
        ({"mine": SURE}, RETRAINED, LABELS - 1, "from 0"),
        ({"mine": SURE}, RETRAINED, LABELS[:0], "at least one"),
    ],
)
def test_what_cannot_be_scored_is_refused(methods: Any, retrained: Any, labels: Any, words: str):
    with pytest.raises(InputError, match=words):
        ja.score_unlearning(KEY, methods, retrained, labels)


def test_an_original_of_other_classes_is_refused():
    with pytest.raises(InputError, match=r"original\[forget\] has 4 classes"):
        score({"mine": SURE}, RETRAINED, original={"forget": np.random.default_rng(1).normal(size=(8, 30, 4))})


WIDE_LABELS = np.arange(60) % CLASSES


def of_60(models: int, own: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    hard = np.random.default_rng(0).normal(size=(60, 1)) + own
    return random.normal(size=(models, 60, CLASSES)) + hard * (np.arange(CLASSES) == WIDE_LABELS[:, None])


def test_a_near_copy_and_a_model_on_another_scale_are_refused() -> None:
    mine, retrained = of_60(8, 2.0, 1), of_60(16, 0.0, 2)
    crumbs = 0.003 * np.random.default_rng(1).normal(size=(60, CLASSES))
    assert score({"mine": {"forget": mine}}, {"forget": retrained}, WIDE_LABELS).finding.verdict == "distinguishable"
    for fifth, words in (
        (mine[2] + crumbs, "models 2 and 5"),
        (mine[2].astype(np.float16).astype(float), "models 2 and 5"),
        (1000 * mine[5], "model 5 is unlike"),
        (0 * mine[5] - 2, "model 5 is unlike"),
        (retrained[9] + crumbs, "model 5 has the outputs of model 9 of `retrained`"),
    ):
        changed = mine.copy()
        changed[5] = fifth
        with pytest.raises(InputError, match=words):
            score({"mine": {"forget": changed}}, {"forget": retrained}, WIDE_LABELS)


def test_one_model_of_sixteen_that_hides_the_others_gives_no_good_verdict() -> None:
    """Longer training, or permuted labels: the interval is wide, and rules out no memory."""
    retrained, original = of_60(32, 0.0, 4), of_60(16, 6.0, 5)
    for own, times, good in ((2.0, 1.0, False), (2.0, 20.0, False), (2.0, -1.0, False), (0.0, 1.0, True)):
        mine = of_60(16, own, 3)
        mine[3] *= times
        sides = {"mine": {"forget": mine}}, {"forget": retrained}
        found = score(*sides, WIDE_LABELS, original={"forget": original}).finding
        assert (found.verdict == "not distinguishable") is good
        assert found.verdict == "distinguishable" or times != 1 or good
