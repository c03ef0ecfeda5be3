"""Every benchmark explains itself, and can be tried within two minutes."""

from __future__ import annotations

import importlib
from pathlib import Path

import bench.__main__ as runner
import pytest


@pytest.mark.parametrize("name", runner.cases())
def test_it_can_be_quick(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    package = (Path(runner.__file__).parent / name).is_dir()
    main = importlib.import_module(f"bench.{name}{'.run' * package}").main
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "--quick" in capsys.readouterr().out
