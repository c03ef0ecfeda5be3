import re
import threading

import pytest

from lakerunner.index.database import Database
from lakerunner.index.migrate import (
    Migration,
    known_migrations,
    migrate,
    require_current_schema,
    schema_version,
)
from lakerunner.model.errors import BadInput


def test_a_new_database_gets_everything_once(empty_database: Database) -> None:
    assert schema_version(empty_database) == 0
    with pytest.raises(BadInput, match="run `lakerunner migrate`"):
        require_current_schema(empty_database)
    assert migrate(empty_database) == list(known_migrations())
    assert migrate(empty_database) == []
    require_current_schema(empty_database)


def test_several_at_once_apply_each_migration_once(empty_database: Database) -> None:
    applied: list[list[Migration]] = []
    threads = [threading.Thread(target=lambda: applied.append(migrate(empty_database))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(some) for some in applied) == [0] * 5 + [len(known_migrations())]


def test_a_schema_that_requires_a_newer_release_is_refused(database: Database) -> None:
    newer = len(known_migrations()) + 1
    with database.transaction() as tx:
        tx.execute("INSERT INTO schema_migration VALUES (%s, 'contract', '', now(), %s)", [newer, newer])
    for refuses in (require_current_schema, migrate):
        with pytest.raises(BadInput, match=rf"requires a release that knows schema {newer}.*upgrade lakerunner"):
            refuses(database)


def test_a_schema_to_which_a_newer_release_only_added_is_used(database: Database) -> None:
    known = known_migrations()
    added = Migration(
        len(known) + 1, "later", "ALTER TABLE org ADD COLUMN later text; CREATE TABLE later_still (x int);"
    )
    # It takes away what releases before this one used, and this one does not.
    removed = Migration(len(known) + 2, "contract", f"-- requires: {len(known):04d}\nDROP TABLE later_still;")
    assert migrate(database, [*known, added, removed]) == [added, removed]
    require_current_schema(database)
    assert migrate(database) == []


def test_the_table_of_an_earlier_release_is_understood(database: Database) -> None:
    with database.transaction() as tx:
        tx.execute("ALTER TABLE schema_migration DROP COLUMN requires")
    require_current_schema(database)
    assert migrate(database) == []
    with database.transaction() as tx:
        row = tx.execute("SELECT max(requires) AS most FROM schema_migration").fetchone()
    assert row is not None and row["most"] == 0


#: What disturbs roles of the release before: they still write the old form, or read what is gone.
_CONTRACTS = re.compile(
    r"\bDROP\s+(TABLE|COLUMN|VIEW|FUNCTION)\b|\bRENAME\b|\bALTER\s+COLUMN\s+\w+\s+(TYPE|SET\s+NOT\s+NULL)\b"
    r"|\bADD\s+COLUMN\s+(?:(?!,|;|\bDEFAULT\b)[\s\S])*\bNOT\s+NULL\b(?![^,;]*\bDEFAULT\b)",
    re.IGNORECASE,
)
#: The schema of the first release that asked this of migrations.
_FIRST_GUARDED = 22


@pytest.mark.parametrize(
    "migration", [each for each in known_migrations() if each.version >= _FIRST_GUARDED], ids=lambda each: each.name
)
def test_a_migration_that_takes_something_away_says_what_it_requires(migration: Migration) -> None:
    statements = re.sub(r"--[^\n]*", "", migration.sql)
    if _CONTRACTS.search(statements):
        assert 0 < migration.requires < migration.version, "expand first, contract a release later: docs/upgrade.md"


@pytest.mark.parametrize(
    ("sql", "contracts"),
    [
        ("ALTER TABLE org ADD COLUMN a text", False),
        ("ALTER TABLE org ADD COLUMN a text NOT NULL DEFAULT ''", False),
        ("ALTER TABLE org ADD COLUMN a text DEFAULT '' NOT NULL, ADD COLUMN b int", False),
        ("CREATE TABLE t (a int NOT NULL)", False),
        ("ALTER TABLE org ADD COLUMN a text NOT NULL", True),
        ("ALTER TABLE org DROP COLUMN name", True),
        ("ALTER TABLE org RENAME COLUMN name TO title", True),
        ("ALTER TABLE org ALTER COLUMN name TYPE int", True),
        ("ALTER TABLE org ALTER COLUMN name SET NOT NULL", True),
        ("DROP TABLE org", True),
    ],
)
def test_what_contracts_is_recognised(sql: str, contracts: bool) -> None:
    assert bool(_CONTRACTS.search(sql)) is contracts


def test_a_changed_migration_is_refused(database: Database) -> None:
    with database.transaction() as tx:
        tx.execute("UPDATE schema_migration SET checksum = 'other' WHERE version = 1")
    with pytest.raises(BadInput, match="was changed after its use"):
        migrate(database)


def test_a_failing_migration_leaves_nothing_behind(empty_database: Database) -> None:
    broken = Migration(1, "broken", "CREATE TABLE half (x int); SELECT * FROM nowhere;")
    with pytest.raises(BadInput):
        migrate(empty_database, [broken])
    assert schema_version(empty_database) == 0
    with empty_database.transaction() as tx:
        row = tx.execute("SELECT to_regclass('half') AS found").fetchone()
    assert row is not None and row["found"] is None


def test_versions_have_no_gaps() -> None:
    assert [migration.version for migration in known_migrations()] == list(range(1, len(known_migrations()) + 1))
