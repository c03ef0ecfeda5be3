"""`lakerunner bus`: consumer lag, recent messages, dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from lakerunner.cli.verb import Cli, verb
from lakerunner.model.errors import BadInput

if TYPE_CHECKING:
    from lakerunner.bus.contract import Bus
    from lakerunner.bus.dead_letters import DeadLetterRecord

app = typer.Typer(no_args_is_help=True, help="The bus: consumer lag, recent messages, dead letters.")

TopicOption = Annotated[str, typer.Option(help="Only this topic, without the prefix.", show_default="all")]


@contextmanager
def _bus(cli: Cli) -> Iterator[Bus]:
    from lakerunner.bus.open import open_bus

    with cli.index() as database:
        bus = open_bus(cli.settings, database)
        try:
            yield bus
        finally:
            bus.close()


@app.command()
@verb
def lag(cli: Cli, group: Annotated[str, typer.Option(help="Only this group.", show_default="all")] = "") -> None:
    """Show how far each consumer group is behind, by topic and partition."""
    with _bus(cli) as bus:
        lags = bus.lag(group or None)
    rows = [
        {
            "group": each.group,
            "topic": each.topic,
            "partition": each.partition,
            "committed": each.committed,
            "end": each.end,
            "lag": each.behind,
            "member": each.member or None,
        }
        for each in lags
    ]
    cli.output.rows(rows, ["group", "topic", "partition", "committed", "end", "lag", "member"])


@app.command()
@verb
def tail(
    cli: Cli,
    topic: Annotated[str, typer.Argument(help="Topic without the prefix, such as segments.logs.ingest.")],
    count: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Number of messages.")] = 10,
) -> None:
    """Show the newest messages of a topic, oldest first. Consumer groups are not affected."""
    with _bus(cli) as bus:
        records = bus.tail(topic, count)
    rows = [
        {
            "at": each.created_at,
            "partition": each.partition,
            "offset": each.offset,
            "key": each.key,
            "message": each.payload.decode(errors="backslashreplace"),
        }
        for each in records
    ]
    cli.output.rows(rows, ["at", "partition", "offset", "key", "message"])


@app.command()
@verb
def dead(cli: Cli, topic: TopicOption = "") -> None:
    """List the dead letters: messages that could not be handled, each with the reason."""
    from lakerunner.bus import dead_letters

    with _bus(cli) as bus:
        letters = dead_letters.dead_letters(bus, topic or None)
    cli.output.rows([_row(each) for each in letters], ["id", "at", "group", "attempts", "reason"])


@app.command()
@verb
def redrive(
    cli: Cli,
    letters: Annotated[
        list[str] | None, typer.Argument(help="Ids from `lakerunner bus dead`.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Redrive all dead letters, or all of --topic.")] = False,
    topic: TopicOption = "",
) -> None:
    """Send dead letters back to the topic where they failed, once the cause is fixed."""
    from lakerunner.bus import dead_letters

    if bool(letters) == every:
        raise BadInput(
            "cannot redrive: give either ids or --all", hint="see `lakerunner bus dead` for ids, or use --all"
        )
    with _bus(cli) as bus:
        sent = dead_letters.redrive_all(bus, topic or None) if every else dead_letters.redrive(bus, letters or [])
    cli.output.result(f"redrove {len(sent)} messages", [_row(each) for each in sent])


def _row(buried: DeadLetterRecord) -> dict[str, object]:
    letter = buried.letter
    return {
        "id": buried.letter_id,
        "at": buried.died_at,
        "group": letter.group,
        "attempts": letter.attempts,
        "code": letter.code,
        "reason": letter.reason,
        "message": letter.payload.decode(errors="backslashreplace"),
    }
