"""Verbs for a whole deployment: serve, migrate, status, doctor, warm."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakerunner.cli.render import OutputFormat, shown
from lakerunner.cli.verb import Cli, verb
from lakerunner.ops.roles import CANARY_ROLES, DEMO_ROLES, ROLES

if TYPE_CHECKING:
    from lakerunner.ops.supervisor import Supervisor

_QUERY_API = "query-api"

_WATCH_S = 2.0
#: Orgs whose cost is shown as text. JSON has more.
_SHOWN_ORGS = 10


@verb
def serve(
    cli: Cli,
    demo: Annotated[bool, typer.Option("--demo", help="Also write the telemetry of a small shop, live.")] = False,
) -> int:
    """Run everything on this machine, the embedded PostgreSQL and all roles, until Ctrl-C."""
    from lakerunner.ops.fork_server import start_fork_server

    roles = [*ROLES, *(CANARY_ROLES if cli.settings.canary.enabled else ()), *(DEMO_ROLES if demo else ())]
    names = [role.name for role in roles]
    # First, because it imports the roles while this process imports the rest, and the index starts.
    fork_server = start_fork_server("lakerunner.cli.main", names)
    try:
        from lakerunner.ops.supervisor import Supervisor
        from lakerunner.runtime.telemetry import configure_telemetry

        configure_telemetry("serve", cli.settings)
        return Supervisor(cli.settings, names, _announce, fork_server).run()
    finally:
        if fork_server is not None:
            fork_server.close()


def _announce(supervisor: Supervisor) -> None:
    from lakerunner.runtime.kernels import are_being_compiled

    # The address of the API is for Grafana and others, as it is; the other roles have little to show but their health.
    places = [
        (address.name, address.url if address.name == _QUERY_API else f"{address.url}/healthz")
        for address in supervisor.addresses
    ]
    places += [("data", str(supervisor.data_dir)), ("logs", str(supervisor.data_dir / "logs"))]
    width = max(len(name) for name, _ in places)
    sys.stdout.write("\nLakerunner is ready.\n")
    sys.stdout.writelines(f"  {name:<{width}}  {shown(place)}\n" for name, place in places)
    if are_being_compiled():
        sys.stdout.write("Kernels are still being compiled, once: the first queries take seconds longer.\n")
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
    """Show what runs, what is stored and waits, freshness, lag, cost, objectives and current problems."""
    from lakerunner.bus.open import open_bus
    from lakerunner.ops.supervisor import read_serve_state
    from lakerunner.serve.admin.status import status_document
    from lakerunner.store.config import StoreConfig
    from lakerunner.store.open import open_store

    with cli.index() as database:
        bus, store = open_bus(cli.settings, database), open_store(StoreConfig.of(cli.settings))
        try:
            while True:
                _show_status(
                    cli,
                    {
                        **status_document(cli.settings, database, bus, store),
                        "serve": read_serve_state(cli.settings.data.dir.resolve()),
                    },
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
    return rows + _monitored_rows(document, index)


def _monitored_rows(document: dict[str, Any], index: dict[str, Any]) -> list[dict[str, object]]:
    """What the monitor watches: backlog and freshness, levels and tiers, cost, objectives, the canary, problems."""
    rows: list[dict[str, object]] = []
    for stage in index["stages"] or ():
        state = f"open, the oldest for {stage['oldest_s']:.0f} s"
        rows.append({"what": f"items of {stage['stage']}", "state": state, "count": stage["open"]})
    for signal in index["signals"] or ():
        if signal["objects"]:
            state = f"visible after p50 {signal['p50_s']:.1f} s, p99 {signal['p99_s']:.1f} s"
            rows.append({"what": f"objects of {signal['signal']}", "state": state, "count": signal["objects"]})
    for level in index["levels"] or ():
        tier = f", tier {level['tier_s']} s" if level["tier_s"] else ""
        what, state = f"segments of {level['signal']}", f"level {level['level']}{tier}"
        rows.append({"what": what, "state": state, "count": level["segments"]})
    for tier in index["tiers"] or ():
        state = f"{tier['lag_s']:.0f} s behind"
        rows.append({"what": f"tier of {tier['tier_s']} s", "state": state, "count": f"{tier['windows']} windows"})
    for cost in (index["costs"] or ())[:_SHOWN_ORGS]:
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(cost["requests"].items()))
        moved = sum(cost["request_bytes"].values())
        state = f"{cost['bytes']:,} bytes; requests: {counts or 'none'}; {moved:,} bytes moved"
        what = f"org {cost['org_id']}" if uuid.UUID(str(cost["org_id"])).int else "requests of no org"
        rows.append({"what": what, "state": state, "count": cost["segments"]})
    for each in document["objectives"]:
        state = f"burn rate {each['burn_rate']:.2f} over {each['window_s'] // 60} min"
        rows.append({"what": f"objective {each['objective']}", "state": state, "count": "-"})
    for each in index["canary"] or ():
        state = f"lost {each['lost']}, doubled {each['doubled']}, waiting for {each['waiting_s']:.0f} s"
        rows.append({"what": f"canary of {each['signal']}", "state": state, "count": f"{each['rounds']} rounds"})
    if document["bucket"] is not None:
        state = document["bucket"]["error"] or f"answers in {document['bucket']['seconds'] * 1000:.1f} ms"
        rows.append({"what": "bucket", "state": state, "count": "-"})
    if document["dead_letters"]:
        rows.append({"what": "dead letters", "state": "see `lakerunner bus dead`", "count": document["dead_letters"]})
    return rows + [
        {"what": f"PROBLEM {each['name']}", "state": each["summary"], "count": each["severity"]}
        for each in document["problems"]
    ]


@verb
def doctor(cli: Cli) -> int:
    """Check machine, index, bus, bucket, queue, Spark, query workers, clocks and permissions, and print the fixes."""
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
    from lakerunner.model.errors import Bug
    from lakerunner.ops.threads import WITHOUT_THREADS

    began_s = time.monotonic()
    # Kernels are code, not telemetry: whoever runs this installation may read them.
    os.umask(0o022)
    # Standard output is for the result.
    command = [sys.executable, "-m", "lakerunner.ops.compile_kernels"]
    if subprocess.run(command, env={**os.environ, **WITHOUT_THREADS}, stdout=subprocess.DEVNULL).returncode:
        raise Bug("cannot compile the kernels", hint="the lines above say why")
    seconds = round(time.monotonic() - began_s, 1)
    cli.output.result(f"all kernels are compiled ({seconds} s)", {"seconds": seconds})
