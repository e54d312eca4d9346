"""How far an `unlearn` audit is."""

from jaxaudit.attacks.learned import BATCH_SIZE
from jaxaudit.audits.unlearn.result import AMNESIAC, ORIGINAL, UNTRAINED
from jaxaudit.ensemble import Progress
from jaxaudit.learners import NetworkLearner


class Share:
    """Progress of the parts of an audit, in thousandths, each counted by a guess of its work."""

    def __init__(
        self,
        progress: Progress | None,
        learner: NetworkLearner,
        examples: int,
        nonmembers: int,
        attack_epochs: int,
        attack_each: bool,
        seeds: int,
        sets: int,
        names: list[str],
    ) -> None:
        steps = learner.epochs * -(-examples // learner.batch_size) * seeds
        attack = attack_epochs * -(-(examples + nonmembers) // BATCH_SIZE) * seeds if nonmembers else 0
        work = {"train": steps * (1.5 if AMNESIAC in names else 1.0), "retrain": steps * sets}
        work |= {UNTRAINED: 1.0, ORIGINAL: attack + 1.0}
        work |= {f"{name} {index}": attack * attack_each + 1.0 for name in names for index in range(sets)}
        total, before = sum(work.values()), 0.0
        self.progress, self.spans, self.said = progress, {}, 0
        for part, size in work.items():
            self.spans[part] = before / total, size / total
            before += size

    def of(self, part: str) -> Progress | None:
        """What a part calls as it goes on."""
        progress, (start, size) = self.progress, self.spans[part]
        if progress is None:
            return None

        def report(done: int, total: int) -> None:
            # What is taken up again after a stop may come later than its turn: never say less than before.
            self.said = max(self.said, int(1000 * (start + size * min(done / max(total, 1), 1))))
            progress(self.said, 1000)

        return report

    def passed(self, part: str) -> None:
        """Says that a part is done."""
        if (report := self.of(part)) is not None:
            report(1, 1)

    def finished(self) -> None:
        if self.progress is not None:
            self.progress(1000, 1000)
