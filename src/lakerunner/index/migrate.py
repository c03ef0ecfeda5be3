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
#: A migration that takes something away says which schema a release must know at least to go on working after it.
_REQUIRES = re.compile(r"^-- requires: (\d{4})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def requires(self) -> int:
        """The schema that a release must know to work after this migration; 0 if it only adds."""
        found = _REQUIRES.search(self.sql)
        return int(found[1]) if found else 0


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
            " checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(),"
            " requires integer NOT NULL DEFAULT 0)"
        )
        _add_requires(tx)
        applied = _applied(tx)
        _check_history(applied, known)
        missing = [migration for migration in known if migration.version not in applied]
        for migration in missing:
            tx.execute(migration.sql)
            tx.execute(
                "INSERT INTO schema_migration (version, name, checksum, requires) VALUES (%s, %s, %s, %s)",
                [migration.version, migration.name, migration.checksum, migration.requires],
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


def _add_requires(tx: Connection) -> None:
    """Give the table of an earlier release its last column. Only then, because it locks out roles that start."""
    has_it = tx.execute(
        "SELECT 1 FROM pg_attribute WHERE attrelid = 'schema_migration'::regclass AND attname = 'requires'"
    )
    if has_it.fetchone() is None:
        tx.execute("ALTER TABLE schema_migration ADD COLUMN requires integer NOT NULL DEFAULT 0")


@dataclass(frozen=True, slots=True)
class _Applied:
    """A migration that the database has."""

    checksum: str
    requires: int


def _applied(tx: Connection) -> dict[int, _Applied]:
    exists = tx.execute("SELECT to_regclass('schema_migration') AS found").fetchone()
    if exists is None or exists["found"] is None:
        return {}
    # The whole row, because the column may be missing: the last migration was made by an earlier release.
    rows = tx.execute("SELECT version, checksum, to_jsonb(m) -> 'requires' AS requires FROM schema_migration m")
    return {row["version"]: _Applied(row["checksum"], row["requires"] or 0) for row in rows.fetchall()}


def _check_history(applied: dict[int, _Applied], known: Sequence[Migration]) -> None:
    """Refuse a history that this release does not understand.

    While releases are exchanged, roles of the older one run over the schema of the newer one. Migrations that only add
    do not disturb them; one that takes something away says what it requires.
    """
    newest = max(applied, default=0)
    required = max((each.requires for version, each in applied.items() if version > len(known)), default=0)
    if required > len(known):
        raise BadInput(
            f"cannot use the index: its schema {newest} requires a release that knows schema {required}, and this one "
            f"knows up to {len(known)}",
            hint="upgrade lakerunner; a schema cannot be downgraded",
        )
    for migration in known:
        found = applied.get(migration.version)
        if found is not None and found.checksum != migration.checksum:
            raise BadInput(
                f"cannot use the index: migration {migration.version} ({migration.name}) was changed after its use",
                hint="restore the released file, and put the change into a new migration",
            )
