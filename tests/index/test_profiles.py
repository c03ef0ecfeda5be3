import uuid
from dataclasses import replace

import pytest

from lakerunner.index.database import Database
from lakerunner.index.orgs import DEFAULT_ORG_ID, ensure_default_org
from lakerunner.index.profiles import (
    StorageProfile,
    change_profile,
    create_profile,
    list_profiles,
    profile_for,
    remove_profile,
)
from lakerunner.model.errors import BadInput, Conflict, Missing

PROFILE = StorageProfile(uuid.uuid4(), DEFAULT_ORG_ID, "edge", "s3://raw", "otel-raw/")


def test_the_longest_prefix_wins() -> None:
    narrow = replace(PROFILE, prefix="otel-raw/eu/")
    profiles = [PROFILE, narrow]
    assert profile_for(profiles, "s3://raw", "otel-raw/eu/x") is narrow
    assert profile_for(profiles, "s3://raw", "otel-raw/us/x") is PROFILE
    assert profile_for(profiles, "s3://raw", "elsewhere/x") is None
    assert profile_for(profiles, "s3://other", "otel-raw/x") is None


def test_kept_as_given(database: Database) -> None:
    full = replace(PROFILE, signal="logs", region="eu", endpoint="http://m", credentials_ref="MINIO")
    with database.transaction() as tx:
        ensure_default_org(tx)
        create_profile(tx, full)
        assert list_profiles(tx) == [full]
        with pytest.raises(Conflict):
            create_profile(tx, replace(full, profile_id=uuid.uuid4()))


def test_changed_and_removed(database: Database) -> None:
    with database.transaction() as tx:
        ensure_default_org(tx)
        create_profile(tx, PROFILE)
        changed = change_profile(tx, PROFILE.profile_id, {"collector": "core", "signal": "logs"})
        assert list_profiles(tx) == [changed] == [replace(PROFILE, collector="core", signal="logs")]
    with pytest.raises(BadInput), database.transaction() as tx:
        change_profile(tx, PROFILE.profile_id, {"signal": "smells"})
    with database.transaction() as tx:
        assert list_profiles(tx) == [changed]
        assert remove_profile(tx, PROFILE.profile_id) == changed
        assert list_profiles(tx) == []
        with pytest.raises(Missing, match="profile list"):
            remove_profile(tx, PROFILE.profile_id)


@pytest.mark.parametrize("change", [{"bucket": "raw"}, {"prefix": "db/x"}, {"signal": "smells"}])
def test_what_cannot_be_read_is_refused(database: Database, change: dict[str, str]) -> None:
    with pytest.raises(BadInput), database.transaction() as tx:
        create_profile(tx, replace(PROFILE, **change))  # type: ignore[arg-type]
