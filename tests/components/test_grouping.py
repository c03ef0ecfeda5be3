"""Tests of a file share a process. Otherwise every process would start the servers of a file for itself."""

from __future__ import annotations

import pytest


def test_the_group_of_a_test_is_in_its_id(request: pytest.FixtureRequest) -> None:
    grouped = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@tests/components/test_grouping.py") == grouped
