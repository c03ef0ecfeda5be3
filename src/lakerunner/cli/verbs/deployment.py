"""Verbs for a whole deployment: serve, migrate, status, doctor, warm."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from lakerunner.cli.render import OutputFormat, shown
from lakerunner.cli.verb import Cli, verb
from lakerunner.ops.roles import DEMO_ROLES, ROLES

if TYPE_CHECKING:
    from lakerunner.ops.supervisor import Supervisor

_WATCH_S = 2.0


@verb
def serve(
    cli: Cli,
    demo: Annotated[bool, typer.Option("--demo", help="Also write the telemetry of a small shop, live.")] = False,
) -> int:
    """Run everything on this machine, the embedded PostgreSQL and all roles, until Ctrl-C."""
    from lakerunner.ops.supervisor import Supervisor
    from lakerunner.runtime.telemetry import configure_telemetry

    configure_telemetry("serve", cli.settings)
    roles = (*ROLES, *DEMO_ROLES) if demo else ROLES
    return Supervisor(cli.settings, [role.name for role in roles], _announce).run()


def _announce(supervisor: Supervisor) -> None:
    places = [(address.name, f"{address.url}/healthz") for address in supervisor.addresses]
    places += [("data", str(supervisor.data_dir)), ("logs", str(supervisor.data_dir / "logs"))]
    sys.stdout.write("\nLakerunner is ready.\n")
    sys.stdout.writelines(f"  {name:<12} {shown(place)}\n" for name, place in places)
    sys.stdout.write("Try `lakerunner status --watch`. Ctrl-C stops everything.\n\n")
    sys.stdout.flush()


@verb
def migrate(cli: Cli) -> None:
    """Bring the schema of the index up to this release. Safe to repeat, and to run concurrently."""
    from lakerunner.index.migrate import migrate as migrate_index
    from lakerunner.index.orgs import ensure_default_org

    with cli.index() as database:
        applied = migrate_index(database)
        with database.transaction() as tx:
            ensure_default_org(tx)
    names = [f"{migration.version:04d}_{migration.name}" for migration in applied]
    cli.output.result(f"applied {', '.join(names)}" if names else "the schema is up to date", {"applied": names})


@verb
def status(
    cli: Cli,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds, until Ctrl-C.")] = False,
) -> None:
    """Show processes, objects, work items, segments, freshness, leaders and consumer lag."""
    from lakerunner.bus.open import open_bus
    from lakerunner.ops.supervisor import read_serve_state
    from lakerunner.serve.admin.status import status_document

    with cli.index() as database:
        bus = open_bus(cli.settings, database)
        try:
            while True:
                _show_status(
                    cli, {**status_document(database, bus), "serve": read_serve_state(cli.settings.data.dir.resolve())}
                )
                if not watch:
                    return
                time.sleep(_WATCH_S)
                cli.output.clear()
        except KeyboardInterrupt:
            return
        finally:
            bus.close()


def _show_status(cli: Cli, document: dict[str, object]) -> None:
    if cli.output.kind is OutputFormat.JSON:
        cli.output.document(document)
    else:
        cli.output.rows(_status_rows(document), ["what", "state", "count"])


def _status_rows(document: dict[str, object]) -> list[dict[str, object]]:
    index, bus, serve = document["index"], document["bus"], document["serve"]
    assert isinstance(index, dict) and isinstance(bus, list)
    rows: list[dict[str, object]] = []
    if isinstance(serve, dict):
        for process in serve["processes"]:
            state = f"pid {process['pid']}" + (f", port {process['port']}" if process["port"] else "")
            rows.append({"what": process["name"], "state": state, "count": f"{process['restarts']} restarts"})
    for what in ("objects", "items"):
        rows += [{"what": what, "state": state, "count": count} for state, count in (index[what] or {}).items()]
    fresh = index["freshness"]
    if fresh and fresh["objects"]:
        state = f"p50 {fresh['p50_s']:.1f} s, p99 {fresh['p99_s']:.1f} s"
        rows.append({"what": "seen to visible", "state": state, "count": f"{fresh['objects']} in 5 min"})
    for line in index["segments"] or ():
        rows.append({"what": f"segments of {line['signal']}", "state": line["state"], "count": line["segments"]})
        rows.append({"what": f"rows of {line['signal']}", "state": line["state"], "count": line["rows"]})
    losses = document["losses"]
    assert isinstance(losses, dict)
    for line in losses["rows"]:
        state = f"{line['effect']} in the last hour: {line['reason']}"
        rows.append({"what": f"rows of {line['signal']}", "state": state, "count": line["rows"]})
    for kind, count in losses["events"].items():
        rows.append({"what": "events", "state": f"rejected: {kind}", "count": count})
    for line in index["watermarks"] or ():
        if line["waiting"]:
            what = f"watermark of {line['signal']}, org {line['org_id']}"
            rows.append({"what": what, "state": str(line["watermark"]), "count": f"{line['waiting']} waiting"})
    if index["outbox"]:
        rows.append({"what": "outbox", "state": "pending", "count": index["outbox"]["count"]})
    rows += [{"what": part, "state": "not read in time", "count": "?"} for part in index["degraded"]]
    leaders = (index["leaders"] or {}).items()
    rows += [{"what": f"leader of {name}", "state": holder, "count": 1} for name, holder in leaders]
    rows += [{"what": lag["topic"], "state": f"lag of {lag['group']}", "count": lag["lag"]} for lag in bus]
    return rows


@verb
def doctor(cli: Cli) -> int:
    """Check Java, disk, PostgreSQL, schema, clock, bus and bucket, and print how to fix what is wrong."""
    from lakerunner.ops.doctor import examine

    with cli.index() as database:
        findings = list(examine(cli.settings, database))
    if cli.output.kind is OutputFormat.JSON:
        cli.output.document(findings)
    else:
        rows = [
            {"check": f.subject, "": "ok" if f.ok else "WRONG", "found": f.says, "fix": f.fix or "-"} for f in findings
        ]
        cli.output.rows(rows, ["check", "", "found", "fix"])
    return 0 if all(finding.ok for finding in findings) else 1


@verb
def warm(cli: Cli) -> None:
    """Compile the kernels of queries and ingest now, so that the first start need not. For installers and images."""
    began_s = time.monotonic()
    # Roles log what they load; standard output is for the result.
    with contextlib.redirect_stdout(sys.stderr):
        for role in ROLES:
            role.load().preload()
    seconds = round(time.monotonic() - began_s, 1)
    cli.output.result(f"all kernels are compiled ({seconds} s)", {"seconds": seconds})
