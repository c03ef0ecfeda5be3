"""A role of all signals cut into one role a signal, for houses of many machines."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from lakerunner.bus.role import BusRole
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS


class SignalsRole(BusRole):
    """A role whose work is the same for every signal. Its sentence speaks of "all signals"."""

    signals: ClassVar[tuple[Signal, ...]] = SIGNALS


R = TypeVar("R", bound=SignalsRole)


def by_signal(role: type[R]) -> tuple[type[R], ...]:
    """One role a signal, with the same consumer group: it and the role of all signals share the work."""
    return tuple(
        type(
            f"{role.__name__}Of{signal.name.capitalize()}",
            (role,),
            {
                "name": f"{role.name}-{signal}",
                "sentence": role.sentence.replace("all signals", signal.name),
                "signals": (signal,),
            },
        )
        for signal in SIGNALS
    )
