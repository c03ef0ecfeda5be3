"""Load compiled kernels, of scans and of every language, before the first client waits for them."""

from __future__ import annotations

import time

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.languages import MODULES, language
from lakerunner.query.scan.samples.decoded import choose
from lakerunner.query.scan.samples.merge import merge
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.runtime.telemetry import log


def warm() -> None:
    began_s = time.monotonic()
    for name in MODULES:
        language(name).warm()
    _warm_scan(np.arange(20) * 15_000)
    log().info("kernels loaded", seconds=round(time.monotonic() - began_s, 2))


def _warm_scan(times_ms: np.ndarray) -> None:
    labels = LabelSet.of({"__name__": "m"})
    whole = Samples(np.array([labels.tid()]), [labels], np.array([0, 20]), times_ms, np.arange(20.0), times_ms)
    part, _ = choose(whole, np.array([True]), 15_000, 60_000)
    merge([whole, Samples(part.tids, [labels], part.offsets, whole.timestamps_ms, whole.values, begins=part.begins)])
