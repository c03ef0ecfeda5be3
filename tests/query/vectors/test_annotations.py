"""Annotations: the language in front, the position behind, the same after a way through JSON."""

from __future__ import annotations

import json
import math

from lakerunner.query.vectors.annotations import Annotations, LastOfStep


def _notes() -> Annotations:
    notes = Annotations("sum(\n  up)", "LogQL")
    notes.warn("strange", 7)
    notes.info("curious", 0)
    notes.start_overlap("m", 4, windows=2)
    notes.forced_monotonicity("m", 4, 1_000, 0.5, math.inf, 2.0)
    return notes


def test_messages_name_the_language_and_the_position() -> None:
    notes = _notes()
    assert "LogQL warning: strange (2:3)" in notes.warnings()
    assert "LogQL info: curious (1:1)" in notes.infos()
    assert all(text.startswith("LogQL ") for text in [*notes.warnings(), *notes.infos()])
    assert any(text.endswith("(2 occurrences) (1:5)") for text in notes.warnings())


def test_annotations_survive_json() -> None:
    notes = _notes()
    read = Annotations.from_json(notes.text, json.loads(json.dumps(notes.to_json())))
    assert (read.language, read.warnings(), read.infos()) == ("LogQL", notes.warnings(), notes.infos())


def test_only_the_last_message_of_a_step_is_kept() -> None:
    target = Annotations("a + b", "PromQL")
    last = LastOfStep(target)
    last.at(0, (0, 1)).warn("of the second pair", 0)
    last.at(0, (0, 0)).warn("of the first pair", 0)
    last.at(1, (0, 0)).info("of the next step", 0)
    assert target.warnings() == [], "nothing before flush"
    last.flush()
    assert target.warnings() == ["PromQL warning: of the second pair (1:1)"]
    assert target.infos() == ["PromQL info: of the next step (1:1)"]
