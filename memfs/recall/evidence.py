"""A ranked passage, as the Memory Agent gives it: where it stands, what it says, when and by whom."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["Evidence"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One passage that bears on the question."""

    path: str
    anchor: str | None
    """`t12` for turn 12, a heading slug in a page."""
    origin: str | None
    """The source's own id: a `dia_id`, a message uuid."""
    score: float
    """Larger is better; comparable within one answer only."""
    event_time: datetime | None
    """UTC; when what it says happened."""
    speaker: str | None
    title: str
    """Of the file."""
    text: str
    """The passage as it stands in the file."""
    replaced: tuple[str, ...] = ()
    """What it states that holds no longer, and until when: `ana: home Lisbon, until 2026-05-08`."""
    weak: bool = False
    """It is among the nearest that there is, and may have nothing to do with the question."""

    @property
    def citation(self) -> str:
        """`path#anchor`, or `path`."""
        return f"{self.path}#{self.anchor}" if self.anchor else self.path
