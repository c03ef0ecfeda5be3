"""Numbered SQL migrations with checksums. Safe to run twice, and by several processes at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from lakerunner.index.database import Connection, Database
from lakerunner.model.errors import BadInput, Bug

#: An arbitrary number, equal in every process: the holder of this advisory lock may migrate.
_LOCK = 0x6C72_6462
_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known_migrations() -> tuple[Migration, ...]:
    """Return the migrations of this release, in order and without gaps."""
    folder = resources.files("lakerunner.index").joinpath("migrations")
    found = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := _FILE_NAME.fullmatch(file.name))
    ]
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise Bug("cannot number the migrations: a number is missing or used twice")
    return tuple(found)


def migrate(database: Database, migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """Apply the missing migrations and return them. Concurrent callers wait, then find nothing to do."""
    known = known_migrations() if migrations is None else tuple(migrations)
    with database.transaction() as tx:
        tx.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        tx.execute(
            "CREATE TABLE IF NOT EXISTS schema_migration (version integer PRIMARY KEY, name text NOT NULL,"
            " checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        applied = _applied(tx)
        _check_history(applied, known)
        missing = [migration for migration in known if migration.version not in applied]
        for migration in missing:
            tx.execute(migration.sql)
            tx.execute(
                "INSERT INTO schema_migration (version, name, checksum) VALUES (%s, %s, %s)",
                [migration.version, migration.name, migration.checksum],
            )
    return missing


def schema_version(database: Database) -> int:
    """Return the schema version of the database; 0 when it was never migrated."""
    with database.transaction() as tx:
        return max(_applied(tx), default=0)


def require_current_schema(database: Database) -> None:
    """Raise BadInput unless database and code agree; the error says which is older and what to do."""
    known = known_migrations()
    with database.transaction() as tx:
        applied = _applied(tx)
    _check_history(applied, known)
    if len(applied) < len(known):
        raise BadInput(
            f"cannot start: the index has schema {max(applied, default=0)}, this release needs {len(known)}",
            hint="run `lakerunner migrate`",
        )


def _applied(tx: Connection) -> dict[int, str]:
    exists = tx.execute("SELECT to_regclass('schema_migration') AS found").fetchone()
    if exists is None or exists["found"] is None:
        return {}
    rows = tx.execute("SELECT version, checksum FROM schema_migration").fetchall()
    return {row["version"]: row["checksum"] for row in rows}


def _check_history(applied: dict[int, str], known: Sequence[Migration]) -> None:
    newest = max(applied, default=0)
    if newest > len(known):
        raise BadInput(
            f"cannot use the index: its schema {newest} is newer than this release, which knows up to {len(known)}",
            hint="upgrade lakerunner; a schema cannot be downgraded",
        )
    for migration in known:
        checksum = applied.get(migration.version, migration.checksum)
        if checksum != migration.checksum:
            raise BadInput(
                f"cannot use the index: migration {migration.version} ({migration.name}) was changed after its use",
                hint="restore the released file, and put the change into a new migration",
            )
