"""All signals. To add one, write a new file and add its name to `SIGNALS`."""

from __future__ import annotations

import difflib

from lakerunner.model.errors import BadInput
from lakerunner.model.signal import Signal
from lakerunner.model.signals.logs import LOGS
from lakerunner.model.signals.metrics import METRICS
from lakerunner.model.signals.traces import TRACES

SIGNALS: tuple[Signal, ...] = (LOGS, METRICS, TRACES)


def signal_named(name: str) -> Signal:
    """Return the signal with this name.

    >>> signal_named("logs").time_column
    'timestamp'
    """
    for signal in SIGNALS:
        if signal.name == name:
            return signal
    names = [signal.name for signal in SIGNALS]
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"known signals: {', '.join(names)}"
    raise BadInput(f"cannot find a signal named {name!r}", hint=hint)


__all__ = ["LOGS", "METRICS", "SIGNALS", "TRACES", "signal_named"]
