"""What a template reads of an entry, so that nothing else need be fetched or told apart."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from lakerunner.query.logql.stages.template.functions import LINE, TIMESTAMP
from lakerunner.query.logql.stages.template.nodes import (
    Action,
    Block,
    Branch,
    Chain,
    Command,
    Dot,
    Field,
    Identifier,
    Invocation,
    Operand,
    Pipe,
    Template,
    Variable,
)


@dataclass(frozen=True, slots=True)
class Reads:
    #: None: any label, because the template uses all of them as one value.
    labels: frozenset[str] | None
    line: bool
    time: bool
    #: Whether the result may depend on when the template is evaluated.
    present: bool = False


@functools.lru_cache(maxsize=256)
def reads(template: Template) -> Reads:
    """What the template may read.

    >>> from lakerunner.query.logql.stages.template import parse
    >>> reads(parse("{{.level}} {{__line__}}"))
    Reads(labels=frozenset({'level'}), line=True, time=False, present=False)
    """
    found = set(_of_block(template.root, of_labels=True))
    for _, body in template.defined:
        found |= set(_of_block(body, of_labels=False))
    names = frozenset(name for name in found if name.startswith("."))
    labels = None if "." in names else frozenset(name[1:] for name in names)
    return Reads(labels, LINE in found, TIMESTAMP in found, bool(found & _PRESENT))


#: `date` shows the present where its argument is no time.
_PRESENT = frozenset({"now", "date"})


def _of_block(block: Block, *, of_labels: bool) -> Iterator[str]:
    """Names of functions, and of labels after a dot; a dot alone for all labels.

    `of_labels`: whether the dot is the labels. Inside of `with` and `range` it is not.
    """
    for node in block.nodes:
        if isinstance(node, Action | Invocation | Branch) and node.pipe is not None:
            yield from _of_pipe(node.pipe, of_labels)
        if isinstance(node, Branch):
            yield from _of_block(node.body, of_labels=of_labels and node.keyword == "if")
            if node.otherwise is not None:
                yield from _of_block(node.otherwise, of_labels=of_labels)


def _of_pipe(pipe: Pipe, of_labels: bool) -> Iterator[str]:
    for command in pipe.commands:
        yield from _of_command(command, of_labels)


def _of_command(command: Command, of_labels: bool) -> Iterator[str]:
    for operand in command.args:
        yield from _of_operand(operand, of_labels)


def _of_operand(operand: Operand, of_labels: bool) -> Iterator[str]:
    if isinstance(operand, Identifier):
        yield operand.name
    elif isinstance(operand, Field):
        yield "." + operand.path[0]
    elif isinstance(operand, Dot):
        if of_labels:
            yield "."
    elif isinstance(operand, Variable):
        if operand.path[0] == "$":
            yield "." + (operand.path[1] if len(operand.path) > 1 else "")
    elif isinstance(operand, Chain):
        yield from _of_operand(operand.node, of_labels)
    elif isinstance(operand, Pipe):
        yield from _of_pipe(operand, of_labels)
