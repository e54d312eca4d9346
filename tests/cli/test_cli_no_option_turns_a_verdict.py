"""What each option of a command that gives a verdict may move: data, models, the sentence of the verdict, or nothing.

`test_cli_options_move_no_verdict` measures that those said to move nothing move nothing; here nothing that is new goes
unnoticed, and pure noise is called something at most at the stated rate, however the options are set. Noise that a bank
or rho judges is in `tests/audits/test_noise.py`.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats
from support.saved_runs.attack import attack_audit
from support.saved_runs.unlearn import unlearn_audit
from typer.main import get_command

from jaxaudit.audits.attack.result import AttackAudit
from jaxaudit.cli.app import app
from jaxaudit.metrics.holdout import holdout_test
from jaxaudit.metrics.members import members_test
from jaxaudit.metrics.permutation import better_than_guessing

DATA = """--query --calibration --target --members --members-groups --holdout --groups --holdout-groups --reference
--sample --image-size --field-strength --drop-overlap --drop-unshared --gray --data-dir --holdout-target
--members-target --calibration-target --reference-target --before --holdout-before --target-kind --target-data
--shadows --csv --data --label --categorical --numeric --drop --missing --delimiter --encoding --decimal
--pdtp --reduce --params --classes --class --test-data --per-class --fraction --holdout-size --members-size
--seed --targets --measured-records"""
MODELS = """--model --hidden --epochs --patience --validation --batch-size --learning-rate --optimizer --momentum
--weight-decay --clip-norm --schedule --warmup --label-smoothing --dropout --augment --precision
--models-per-batch --workers --cluster --mixed-devices --shadow-models --holdout-shadow-models --designs
--replicates --controls --subsample --budget --smoothing --penalty --trees --depth --neighbours --iterations
--shadow-pairs --fresh-shadows --pooled-shadow-models --measurements --floor-seeds --likelihood --sigma
--true-fisher --fisher-variant --alpha --unlearn-epochs --unlearn-rate --beta --ssd-alpha --ssd-lambda --seeds
--nonmembers --attack-epochs"""
STATED = {
    "--tests": "the sentence names the test that decides; each has an error rate of its own",
    "--question": "the sentence says which of the two was asked",
    "--same-recipe": "a statement about the target, said with the verdict and taken back where outputs deny it",
    "--stated-share": "the sentence names the share",
    "--bins": "the sentence names the bins",
    "--attacks": "the sentence names the attack; the p-value pays for their number, or the first decides",
    "--methods": "the sentence names the methods",
    "--gamma": "a definition of one attack, which the sentence names",
    "--offline-scale": "a definition of one attack, which the sentence names",
    "--allow-unrelated-target": "a failed check is said with the verdict",
}
NOTHING = """--dry-run --leave-one-out --level --fail-on --json --out --report --top --show-values --chunk --delta
--measured-iterations"""
LEVELS = (0.1, 0.5, 0.95, 0.999)
KEY = jax.random.key(20)
SMALL = attack_audit(8)


@pytest.mark.parametrize("command", ["ks", "attack", "pdtp", "efficacy", "unlearn", "power"])
def test_every_option_is_known(command: str):
    known = [*DATA.split(), *MODELS.split(), *STATED, *NOTHING.split()]
    assert len(set(known)) == len(known)
    parameters = getattr(get_command(app), "commands")[command].params  # noqa: B009
    assert {each.opts[0] for each in parameters} <= set(known)


def most(runs: int) -> int:
    """Of runs at a stated rate of 5%, the number that is exceeded with probability 1 in 1,000."""
    return int(stats.binom.ppf(0.999, runs, 0.05))


def noise_audit(place: int, attacks: int) -> AttackAudit:
    """One of `attack` without any memory: answers that know nothing of the halves."""
    random = np.random.default_rng([place, attacks])
    audit = SMALL
    made = []
    for each in [audit.attacks[0]] * attacks:
        scores = random.normal(size=audit.truth.shape)
        right = ((scores > 0) == audit.truth).mean(axis=0)
        made.append(replace(each, scores=scores, per_target=right))
    called = np.stack([each.scores for each in made]) > 0
    p_value = better_than_guessing(jax.random.fold_in(KEY, place), called, audit.truth, permutations=199)
    return replace(audit, attacks=tuple(made), p_value=p_value)


@pytest.mark.outer
@pytest.mark.parametrize("attacks", [1, 10])
def test_attacks_on_noise_succeed_at_most_at_the_stated_rate_however_many_there_are(attacks: int):
    """False with probability 1 in 1,000 where 5% is true; the key is fixed."""
    runs, found = 200, 0
    for place in range(runs):
        audit = noise_audit(place, attacks)
        verdicts = {replace(audit, level=level).finding.verdict for level in LEVELS}
        assert len(verdicts) == 1
        found += verdicts == {"attack succeeds"}
    assert found <= most(runs)


@pytest.mark.outer
def test_tests_of_use_on_noise_keep_their_rate_at_every_level():
    """As above: the holdout test and the members test of targets and shadow models that remember nothing."""
    runs, found = 200, {"holdout": 0, "members": 0}
    for place in range(runs):
        random, key = np.random.default_rng(place), jax.random.fold_in(KEY, place)
        odds, shadows = random.normal(size=180), random.normal(size=(8, 120))
        membership = random.permuted(np.tile(np.arange(120) < 60, (8, 1)), axis=1)
        holdout, members = set(), set()
        for level in LEVELS:
            how = {"permutations": 199, "level": level}
            holdout.add(holdout_test(key, odds[:60], odds[60:120], shadows, membership, **how).verdict)
            answer = members_test(key, odds, (60, 60, 60), np.ones((180, 1)), **how)
            members.add(answer.usage.verdict)
        assert len(holdout) == len(members) == 1
        found["holdout"] += holdout != {"inconclusive"}
        found["members"] += members != {"inconclusive"}
    assert max(found.values()) <= most(runs)


def test_no_level_moves_the_place_of_an_unlearned_score():
    audit = unlearn_audit({}, {"amnesiac": {}})
    assert len({replace(audit, level=level).threshold for level in LEVELS}) == 1


def test_the_p_value_of_attacks_is_that_of_a_loop_and_membership_is_found():
    random = np.random.default_rng(3)
    halves = random.permuted(np.tile(np.arange(6) < 3, (4, 1)), axis=1)
    truth = np.stack([halves, ~halves], axis=1).reshape(8, 6)
    called = (random.normal(size=(2, 8, 6)) + 1.0 * truth) > 0
    found = better_than_guessing(KEY, called, truth, permutations=4999)

    def statistic(of: np.ndarray) -> float:
        best = -np.inf
        for attack in called:
            right = (attack == of).sum() - of.size / 2
            undecided = sum(attack[2 * k, t] == attack[2 * k + 1, t] for k in range(4) for t in range(6))
            best = max(best, right / np.sqrt(max(24 - undecided, 1)))
        return best

    larger = 0
    for _ in range(4000):
        dealt = []
        for row in halves:
            first = row[random.permutation(6)]
            first = first if random.random() < 0.5 else ~first
            dealt += [first, ~first]
        larger += statistic(np.stack(dealt)) >= statistic(truth) - 1e-9
    assert found == pytest.approx(larger / 4000, abs=0.03)
    assert attack_audit(30).p_value < 0.05
