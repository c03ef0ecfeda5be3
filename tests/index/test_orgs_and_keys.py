import uuid

import pytest

from lakerunner.index import api_keys, orgs
from lakerunner.index.api_keys import Scope
from lakerunner.index.database import Database
from lakerunner.model.errors import BadInput, Conflict, Denied, Missing


def test_orgs_are_found_by_name_and_by_id(database: Database) -> None:
    with database.transaction() as tx:
        org = orgs.create_org(tx, "acme")
        assert orgs.find_org(tx, "acme") == orgs.find_org(tx, str(org.org_id)) == org
        assert [o.name for o in orgs.list_orgs(tx)] == ["acme"]
        with pytest.raises(Missing, match="org list"):
            orgs.find_org(tx, "nobody")


def test_a_name_is_taken_once(database: Database) -> None:
    with database.transaction() as tx:
        orgs.create_org(tx, "acme")
        with pytest.raises(Conflict):
            orgs.create_org(tx, "acme")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 200])
def test_odd_names_are_refused(database: Database, name: str) -> None:
    with pytest.raises(BadInput), database.transaction() as tx:
        orgs.create_org(tx, name)


def test_the_default_org_is_made_once(database: Database) -> None:
    for _ in range(2):
        with database.transaction() as tx:
            orgs.ensure_default_org(tx)
            assert [o.org_id for o in orgs.list_orgs(tx)] == [orgs.DEFAULT_ORG_ID]


def test_a_key_opens_until_it_is_revoked(database: Database) -> None:
    with database.transaction() as tx:
        org = orgs.create_org(tx, "acme")
        made = api_keys.create_key(tx, "grafana", [Scope.QUERY], [org.org_id])
    with database.transaction() as tx:
        key = api_keys.authenticate(tx, made.secret)
        assert (key.org_ids, key.scopes) == ({org.org_id}, {Scope.QUERY})
        api_keys.require(key, Scope.QUERY)
        with pytest.raises(Denied, match="lacks the scope ingest"):
            api_keys.require(key, Scope.INGEST)
        first = api_keys.revoke_key(tx, key.key_id)
        assert api_keys.revoke_key(tx, key.key_id) == first
        with pytest.raises(Denied):
            api_keys.authenticate(tx, made.secret)


def test_admin_holds_every_scope(database: Database) -> None:
    with database.transaction() as tx:
        key = api_keys.create_key(tx, "root", [Scope.ADMIN], []).key
    for scope in Scope:
        api_keys.require(key, scope)


def test_unknown_keys_are_denied_like_revoked_ones(database: Database) -> None:
    with database.transaction() as tx, pytest.raises(Denied, match="unknown or revoked"):
        api_keys.authenticate(tx, "lrk_" + "x" * 43)


def test_the_secret_is_nowhere_in_the_database(database: Database) -> None:
    with database.transaction() as tx:
        secret = api_keys.create_key(tx, "root", [Scope.ADMIN], []).secret
        stored = tx.execute("SELECT api_key::text AS row FROM api_key").fetchone()
    assert stored is not None and secret not in stored["row"] and secret.encode().hex() not in stored["row"]


def test_a_key_needs_a_scope_and_an_org(database: Database) -> None:
    with database.transaction() as tx:
        with pytest.raises(BadInput, match="--scope"):
            api_keys.create_key(tx, "x", [], [uuid.uuid4()])
        with pytest.raises(BadInput, match="--org"):
            api_keys.create_key(tx, "x", [Scope.QUERY], [])
