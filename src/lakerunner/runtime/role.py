"""What a role is: one kind of process, written as configure, start, ready, drain, stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from starlette.routing import BaseRoute

from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop

#: Returns when a dependency answers, raises a LakeError when it does not.
Probe = Callable[[], None]


class Recycle(Exception):
    """Raised by `run` when the process, having drained, wants to be started anew at once. It is no failure."""


class Role(ABC):
    """One process's work. The runner calls, in this order: the constructor, `start`, `run`, `close`.

    `start` and `run` may raise: a retryable error means not-ready and another try, `Recycle` that the process is to
    be started anew, any other ends it with one line. `run` returns when `stop` is set, having finished or given back
    what it held: that is the draining.
    """

    name: ClassVar[str]
    #: One sentence, for `--help` and the docs.
    sentence: ClassVar[str]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def start(self) -> None:
        """Open what it needs. Called again after a retryable error, so it must tolerate what it left behind."""

    @abstractmethod
    def run(self, stop: Stop) -> None:
        """Work until `stop` is set."""

    @abstractmethod
    def probes(self) -> Mapping[str, Probe]:
        """Its dependencies by name. All answering is what ready means."""

    def close(self) -> None:  # noqa: B027  (not every role holds something)
        """Let go of everything. Called once, whatever happened."""

    def routes(self) -> Sequence[BaseRoute]:
        """What it serves over HTTP beside its health."""
        return ()
