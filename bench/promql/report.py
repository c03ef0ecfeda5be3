"""Report figures as JSON lines, and finally as a table with the missed targets."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.promql.cases import Target

_SMALL_MS = 30.0
_HALF, _FIRST_POINT = 0.5, 0.3


@dataclass(frozen=True, slots=True)
class Figure:
    case: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.peer_value if self.peer_value else None

    def line(self) -> str:
        ratio = self.ratio
        return json.dumps(
            {
                "bench": "promql",
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
        if self.peer == "full answer" and ratio is not None and ratio > _FIRST_POINT:
            return f"first point after {ratio:.2f} of the whole, wanted {_FIRST_POINT}"
        if self.target is Target.SMALL and self.case.endswith("wall") and self.value > _SMALL_MS:
            return f"{self.value:.0f} ms, wanted {_SMALL_MS:.0f}"
        if self.target is Target.HALF and ratio is not None and ratio > _HALF:
            return f"{ratio:.2f} of {self.peer}, wanted {_HALF}"
        if self.target is Target.SAME and ratio is not None and ratio > 1:
            return f"{ratio:.2f} of {self.peer}, wanted 1"
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
    return sum(figure.target is not None or figure.peer == "full answer" for figure in figures)
