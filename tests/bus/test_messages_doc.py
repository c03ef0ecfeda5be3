"""The page on messages names every topic and every field."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from lakerunner.bus import messages, topics
from lakerunner.model.signals import SIGNALS

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "messages.md").read_text(encoding="utf-8")


def test_every_topic_is_on_the_page() -> None:
    for topic in topics.LIVE_TOPICS:
        general = topic.name
        for signal in SIGNALS:
            general = general.replace(f".{signal}", ".{signal}")
        row = next(
            (line for line in PAGE.splitlines() if line.startswith((f"| `{topic.name}`", f"| `{general}`"))), None
        )
        assert row is not None, topic.name
        assert topic.message.__name__ in row


def test_every_field_is_on_the_page() -> None:
    for kind in messages.Message.__subclasses__():
        section = PAGE.split(f"## {kind.__name__}\n")[1].split("\n## ")[0]
        for field in dataclasses.fields(kind):
            assert f"`{field.name}`" in section, f"{kind.__name__}.{field.name}"
