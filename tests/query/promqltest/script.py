"""Scripts to commands: clear, load, eval, with everything that is expected of an eval."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from lakerunner.model.errors import LakeError
from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.lexer import tokenize
from lakerunner.query.syntax.durations import parse_duration_ms
from lakerunner.query.syntax.strings import unquote
from tests.query.promqltest.series import Point, parse_metric, parse_series, parse_starts

_LOAD = re.compile(r"^load(?:_(with_nhcb))?\s+(.+?)$")
_INSTANT = re.compile(r"^eval(?:_(fail|warn|ordered|info))?\s+instant\s+(?:at\s+(.+?))?\s+(.+)$")
_RANGE = re.compile(r"^eval(?:_(fail|warn|info))?\s+range\s+from\s+(.+)\s+to\s+(.+)\s+step\s+(.+?)\s+(.+)$")
_EXPECT = re.compile(r"^expect\s+(ordered|fail|warn|no_warn|info|no_info)(?:\s+(regex|msg):(.+))?$")
_EXPECT_RANGE = re.compile(r"^expect range vector\s+from\s+(.+)\s+to\s+(.+)\s+step\s+(.+)$")
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:inf|nan))$")


@dataclass
class Load:
    line: int
    step_ms: int
    nhcb: bool
    #: Series, its points, and the start timestamps relative to the points' times.
    series: list[tuple[LabelSet, list[Point], list[int | None] | None]] = field(default_factory=list)


@dataclass
class Clear:
    pass


@dataclass
class Expectation:
    """A message to find: exact text, or a pattern, or anything."""

    text: str | None = None
    pattern: str | None = None

    def accepts(self, message: str) -> bool:
        if self.text is not None:
            return message == self.text
        return self.pattern is None or re.search(self.pattern, message) is not None


@dataclass
class Eval:
    line: int
    expr: str
    #: None for a range eval.
    at_ms: int | None
    start_ms: int = 0
    end_ms: int = 0
    step_ms: int = 0
    fail: list[Expectation] = field(default_factory=list)
    warn: list[Expectation] = field(default_factory=list)
    info: list[Expectation] = field(default_factory=list)
    no_warn: bool = False
    no_info: bool = False
    ordered: bool = False
    scalar: float | None = None
    string: str | None = None
    range_vector: bool = False
    series: list[tuple[LabelSet, list[Point]]] = field(default_factory=list)


@dataclass
class Unreadable:
    """A block that is no command we know: it fails by itself, and the rest of the script still runs."""

    line: int
    text: str
    reason: str


Command = Load | Clear | Eval | Unreadable


def duration_ms(text: str) -> int:
    text = text.strip()
    sign = -1 if text.startswith("-") else 1
    text = text.lstrip("+-")
    return sign * (parse_duration_ms(text) if not text.isdigit() else int(text) * 1000)


def read_script(path: Path) -> list[Command]:
    lines = [line.strip() for line in path.read_text().splitlines()]
    lines = ["" if line.startswith("#") else line for line in lines]
    commands: list[Command] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line or line.lower().split()[0] == "clear":
            commands += [Clear()] if line else []
            at += 1
            continue
        end = at + 1
        while end < len(lines) and lines[end]:
            end += 1
        try:
            commands.append(_block(line, lines[at + 1 : end], at + 1))
        except (AssertionError, ValueError, LakeError) as reason:
            commands.append(Unreadable(at + 1, line, f"cannot read the block: {reason}"))
        at = end
    return commands


def _block(line: str, body: list[str], number: int) -> Command:
    if line.lower().startswith("load"):
        return _load(line, body, number)
    if line.lower().startswith("eval"):
        return _eval(line, body, number)
    raise ValueError(f"not a command: {line}")


def _load(line: str, body: list[str], number: int) -> Load:
    found = _LOAD.match(line)
    assert found, line
    load = Load(number, duration_ms(found[2]), found[1] is not None)
    default: list[int | None] | None = None
    pending: list[int | None] | None = None
    for text in body:
        head, _, rest = re.sub(r"[ \t]", " ", text).partition(" ")
        if head.endswith("@st"):
            starts = parse_starts(rest)
            if head == "@st":
                default = starts
            else:
                pending = starts
                parse_metric(head.removesuffix("@st"))
            continue
        labels, points = parse_series(text)
        starts_here = pending
        if pending is None and default:
            starts_here = [default[i % len(default)] for i in range(len(points))]
        # A series that is written twice in one load is the last one.
        load.series = [one for one in load.series if one[0] != labels]
        load.series.append((labels, points, starts_here))
        pending = None
    return load


def _eval(line: str, body: list[str], number: int) -> Eval:
    instant, ranged = _INSTANT.match(line), _RANGE.match(line)
    if ranged:
        mode = ranged[1]
        command = Eval(number, ranged[5], None, *(duration_ms(ranged[i]) for i in (2, 3, 4)))
    else:
        assert instant, line
        mode = instant[1]
        command = Eval(number, instant[3], duration_ms(instant[2]) if instant[2] else 0)
    if mode == "ordered":
        command.ordered = True
    elif mode:
        getattr(command, mode).append(Expectation())
    for text in body:
        _expectation(command, text)
    return command


def _expectation(command: Eval, text: str) -> None:
    if text.startswith(("expected_fail_message", "expected_fail_regexp")):
        kind, _, message = text.partition(" ")
        exact = kind.endswith("message")
        command.fail = [Expectation(message.strip() if exact else None, None if exact else message.strip())]
    elif found := _EXPECT_RANGE.match(text):
        command.range_vector = True
        command.start_ms, command.end_ms, command.step_ms = (duration_ms(found[i]) for i in (1, 2, 3))
    elif text.startswith("expect string"):
        quoted = text.removeprefix("expect string").strip()
        command.string = unquote(quoted, tokenize(quoted)[0], "PromQL")
    elif text.split(" ")[0] == "expect":
        found = _EXPECT.match(text)
        assert found, text
        _note(command, found[1], found[2], (found[3] or "").strip())
    elif _NUMBER.match(text):
        command.scalar = float(int(text, 16)) if "x" in text.lower() else float(text)
    else:
        command.series.append(parse_series(text))


def _note(command: Eval, kind: str, form: str | None, text: str) -> None:
    if kind == "ordered":
        command.ordered = True
    elif kind == "no_warn":
        command.no_warn = True
    elif kind == "no_info":
        command.no_info = True
    else:
        expectation = Expectation(text if form == "msg" else None, text if form == "regex" else None)
        getattr(command, kind).append(expectation)
