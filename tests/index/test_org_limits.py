"""Limits of an org are set, read and removed; one wrong name or value refuses them all."""

from __future__ import annotations

import pytest

from lakerunner.index import org_limits, orgs
from lakerunner.index.database import Database
from lakerunner.model.errors import BadInput


def test_set_read_and_taken_back(database: Database) -> None:
    with database.transaction() as tx:
        org_id, other = (orgs.create_org(tx, name).org_id for name in ("a", "b"))
        org_limits.set_limits(tx, org_id, {"max_series": "10000", "timeout_s": 2.5})
        org_limits.set_limits(tx, org_id, {"max_series": 20_000})
        assert org_limits.read_limits(tx, org_id) == {"timeout_s": 2.5, "max_series": 20_000}
        assert isinstance(org_limits.read_limits(tx, org_id)["max_series"], int)
        assert org_limits.read_limits(tx, other) == {}
        org_limits.unset_limits(tx, org_id, ["max_series", "max_steps"])
        assert org_limits.read_limits(tx, org_id) == {"timeout_s": 2.5}


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"max_serie": 1}, "did you mean max_series?"),
        ({"nonsense": 1}, "known limits: timeout_s"),
        ({"max_series": 0}, "max_series to '0'"),
        ({"max_series": "many"}, "max_series to 'many'"),
        ({"max_series": 1.5}, "max_series to '1.5'"),
        ({"timeout_s": -1}, "timeout_s to '-1'"),
        ({"timeout_s": 5, "max_steps": "x"}, "max_steps"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_set(database: Database, limits: dict[str, float], told: str) -> None:
    with database.transaction() as tx:
        org_id = orgs.create_org(tx, "a").org_id
        with pytest.raises(BadInput) as error:
            org_limits.set_limits(tx, org_id, limits)
        assert told in str(error.value)
        assert org_limits.read_limits(tx, org_id) == {}
        with pytest.raises(BadInput):
            org_limits.unset_limits(tx, org_id, ["nonsense"])
