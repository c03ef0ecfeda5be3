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


def test_a_schema_newer_than_the_code_is_refused(database: Database) -> None:
    with database.transaction() as tx:
        tx.execute("INSERT INTO schema_migration VALUES (999, 'future', '')")
    for refuses in (require_current_schema, migrate):
        with pytest.raises(BadInput, match=r"newer than this release.*upgrade lakerunner"):
            refuses(database)


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
