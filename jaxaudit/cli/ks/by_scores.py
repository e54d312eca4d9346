"""Runs `jaxaudit ks --scores TABLE`: from its options to its result, with no training."""

from pathlib import Path

import jax

from jaxaudit.audits.ks.result import KSAudit
from jaxaudit.audits.ks.scores import ScoresTest, judge_scores
from jaxaudit.cli.harness import Job, Outcome
from jaxaudit.cli.ks.options import KSOptions, renamed
from jaxaudit.cli.progress import say
from jaxaudit.data.scores.reading import load_scores
from jaxaudit.data.scores.table import ScoreTable
from jaxaudit.ensemble import Execution
from jaxaudit.errors import InputError
from jaxaudit.metrics.blind_baseline import revealing_words
from jaxaudit.metrics.checks import HOLDOUT_LIKE_QUERY
from jaxaudit.report.kinds import recorded
from jaxaudit.report.record import Provenance
from jaxaudit.runs.provenance import describe_scores


def prepare_by_scores(options: KSOptions) -> Job[KSAudit]:
    """The work for these options."""
    given, audit_options = options.scores, options.audit
    rename = dict(map(renamed, given.column))
    table = load_scores(given.scores or Path(), rename=rename, lower=given.lower, higher=given.higher)
    if given.show_words and table.texts is None:
        raise InputError(f"--show-words: {table.name} has no column `text`; add it, or leave the option out.")
    if table.ignored:
        say(f"{table.name}: {len(table.ignored)} columns are not used: {', '.join(table.ignored[:10])}")
    unknown = [name for name, direction in table.directions.items() if not direction]
    if unknown:
        say(
            f"{table.name}: it is not known whether {', '.join(unknown[:10])} is lower or higher for records that were "
            "used, so both count; --lower or --higher says it"
        )
    test = ScoresTest(stated=audit_options.stated_share, question=audit_options.question)

    def audit(_: Execution) -> KSAudit:
        return judge_scores(jax.random.key(audit_options.seed), table, test=test, level=audit_options.level)

    def outcome(found: KSAudit, provenance: Provenance) -> Outcome:
        record = recorded("ks", found.result, found.sources, provenance)
        return Outcome(record, {}, {}, aside=_words(table, found) if given.show_words else "")

    return Job(options=options, audit=audit, outcome=outcome, data=describe_scores(table), label="comparing")


def _words(table: ScoreTable, found: KSAudit) -> str:
    """The words that tell the sets apart, if the check says so."""
    failed = [each for each in found.targets[0].checks if each.name == HOLDOUT_LIKE_QUERY and not each.passed]
    if not failed or table.texts is None:
        return "No words are shown: query set and holdout were not told apart without the target."
    texts = [table.texts[index] for index in table.rows("query", "holdout")]
    return "Words that tell query set and holdout apart: " + ", ".join(revealing_words(texts, len(table.rows("query"))))
