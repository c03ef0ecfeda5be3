"""What the suite installs itself is installed beside the first tests, before a test asks for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.components import install


def test_every_component_that_is_installed_is_named() -> None:
    named = {sys.modules[each.__module__].__file__ for each in install.COMPONENTS}
    ways = ("import go_program", "import install_lock")
    folder = Path(install.__file__).parent
    sources = [path for path in folder.glob("*.py") if path.name not in ("go_program.py", Path(__file__).name)]
    using = {str(path) for path in sources if any(way in path.read_text() for way in ways)}
    assert using == named


def test_one_that_cannot_be_installed_does_not_keep_the_others_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []

    def refused() -> None:
        pytest.fail("cannot run it: there is no such thing")

    monkeypatch.setattr(install, "COMPONENTS", (refused, lambda: done.append("the other")))
    assert install.main() == 0
    assert done == ["the other"]
    assert "no such thing" in capsys.readouterr().err
