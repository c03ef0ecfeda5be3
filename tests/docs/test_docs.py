"""The docs stay correct: generated pages are current, links and file names exist, and every role is explained."""

import re
import subprocess
from pathlib import Path

import pytest

from lakerunner.model.signals import SIGNALS
from lakerunner.ops.roles import ROLES
from tests.docs.generate import DOCS, PAGES

ROOT = DOCS.parent
MARKDOWN = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    for link in links:
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_role_is_explained(role: type) -> None:
    assert f"`{role.name}`" in (DOCS / "architecture.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_pages_name_exist(page: Path) -> None:
    names = re.findall(r"`((?:src|tests|bench|docs)/[\w./-]+)`", page.read_text(encoding="utf-8"))
    for name in names:
        assert (ROOT / name).exists(), f"{page.name} speaks of {name}"


def test_make_lists_every_target() -> None:
    listed = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets
    for target in targets:
        assert f"make {target}" in listed


def test_signals_are_named_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").lower()
    assert all(signal.name in readme for signal in SIGNALS)
