"""The base class of roles. A role is one kind of process: it is configured, starts, is ready, drains, stops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from starlette.routing import BaseRoute

    from lakerunner.runtime.kernels import Share

#: Returns when a dependency answers; raises a LakeError when it does not.
Probe = Callable[[], None]


class Recycle(Exception):
    """Raised by `run` when the process has drained and wants to be restarted at once. It is not a failure."""


class Role(ABC):
    """The work of one process. The runner calls the constructor, `start`, `run` and `close`, in this order.

    `start` and `run` may raise. After a retryable error the role is not ready and is tried again; `Recycle` restarts
    the process; any other error ends it with one line. When `stop` is set, `run` drains: it finishes or hands back its
    work, and returns.
    """

    name: ClassVar[str]
    #: One sentence, for `--help` and the docs.
    sentence: ClassVar[str]
    #: Metrics that only this role exports.
    registries: ClassVar[tuple[CollectorRegistry, ...]] = ()

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @classmethod
    def kernels(cls) -> Sequence[Share]:
        """Return the shares of compiled kernels that the role uses. Loading them must not start threads."""
        return ()

    @abstractmethod
    def start(self) -> None:
        """Open what the role needs. Called again after a retryable error, so it must tolerate its own leftovers."""

    @abstractmethod
    def run(self, stop: Stop) -> None:
        """Work until `stop` is set."""

    @abstractmethod
    def probes(self) -> Mapping[str, Probe]:
        """Return a probe per dependency. The role is ready when all succeed."""

    def patience_s(self) -> Mapping[str, float]:
        """Return how long the role can serve without a dependency once it has been ready. Meanwhile it is degraded.

        It cannot serve without one that is not named.
        """
        return {}

    def hurry(self) -> None:  # noqa: B027  (not every role waits for others while it starts)
        """Make `start` fail at once: called from another thread when the role is told to stop while it starts."""

    def grace_s(self) -> float | None:
        """Return how long the role may take to end once it is told to, whatever hangs; None if nothing bounds it."""
        return None

    def close(self) -> None:  # noqa: B027  (not every role holds something)
        """Release everything. Called exactly once, also after an error."""

    def routes(self) -> Sequence[BaseRoute]:
        """Return the HTTP routes that the role serves beside its health."""
        return ()
