"""Report figures as JSON lines, and finally as a table with the missed targets."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    bench: str
    case: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    #: The target: at most so much of the peer's value, or at most this value.
    most_ratio: float | None = None
    most: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.peer_value if self.peer_value else None

    def line(self) -> str:
        ratio = self.ratio
        return json.dumps(
            {
                "bench": self.bench,
                "case": self.case,
                "value": round(self.value, 3),
                "unit": self.unit,
                "better": "lower",
                "peer": self.peer,
                "peer_value": None if self.peer_value is None else round(self.peer_value, 3),
                "ratio": None if ratio is None else round(ratio, 3),
            }
        )

    def missed(self) -> str:
        """Describe the missed target; empty if there is none or it is met."""
        ratio = self.ratio
        if self.most_ratio is not None and ratio is not None and ratio > self.most_ratio:
            return f"{ratio:.4g} of {self.peer}, wanted {self.most_ratio:g}"
        if self.most is not None and self.value > self.most:
            return f"{self.value:.4g} {self.unit}, wanted {self.most:g}"
        return ""


class Report:
    def __init__(self) -> None:
        self._figures: list[Figure] = []

    def tell(self, *figures: Figure) -> None:
        for figure in figures:
            self._figures.append(figure)
            sys.stdout.write(figure.line() + "\n")
        sys.stdout.flush()

    def conclude(self, note: str) -> None:
        """Write the table to standard error; standard output is for programs."""
        missed = [figure for figure in self._figures if figure.missed()]
        by_case: dict[str, list[Figure]] = {}
        for figure in self._figures:
            by_case.setdefault(figure.case, []).append(figure)
        lines = [f"{'case':<45} {'ours':>12}"]
        lines += [_row(figures) for figures in by_case.values()]
        lines += ["", note]
        lines += [f"missed: {figure.case}: {figure.missed()}" for figure in missed]
        lines.append(f"{len(missed)} of {_aimed(self._figures)} targets missed")
        sys.stderr.write("\n".join(lines) + "\n")


def _row(figures: Sequence[Figure]) -> str:
    """Format a case with all its peers, and an arrow at each missed target."""
    out = f"{figures[0].case:<45} {figures[0].value:>9,.1f} {figures[0].unit:<2}"
    for figure in figures:
        if figure.ratio is not None:
            out += f"  {'->' if figure.missed() else '  '}{figure.ratio:6.2f} x {figure.peer} {figure.peer_value:,.1f}"
    return out


def _aimed(figures: Sequence[Figure]) -> int:
    return sum(figure.most_ratio is not None or figure.most is not None for figure in figures)


def say(text: str) -> None:
    """Tell the person who waits; standard output is for programs."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
