"""The network of a simulated cluster: which messages arrive, and when."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Network:
    """Links between nodes by their names; a link may be cut in one direction only."""

    dice: random.Random
    delay_s: float
    """Of a message, on average."""
    loss: float = 0.0
    """The share of calls whose message or answer is lost."""
    _cut: set[tuple[str, str]] = field(default_factory=set)

    def cut(self, one: Iterable[str], other: Iterable[str], *, both_ways: bool = True) -> None:
        """Let nothing pass from each of `one` to each of `other`, by default nor back."""
        for source, target in self._pairs(one, other):
            self._cut.add((source, target))
            if both_ways:
                self._cut.add((target, source))

    def heal(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Let messages pass again between each of `one` and each of `other`."""
        for source, target in self._pairs(one, other):
            self._cut -= {(source, target), (target, source)}

    def passes(self, source: str, target: str) -> bool:
        """Return whether a message that is sent now arrives."""
        if self._cut and (source, target) in self._cut:
            return False
        return not self.loss or self.dice.random() >= self.loss

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether no message arrives."""
        return (source, target) in self._cut

    @property
    def is_disturbed(self) -> bool:
        """Whether messages are lost."""
        return bool(self._cut or self.loss)

    def delay(self) -> float:
        """Return how long a message takes."""
        return self.delay_s * (0.5 + self.dice.random())

    @staticmethod
    def _pairs(one: Iterable[str], other: Iterable[str]) -> list[tuple[str, str]]:
        targets = sorted(set(other))
        return [
            (source, target)
            for source in sorted(set(one))
            for target in targets
            if source != target
        ]
