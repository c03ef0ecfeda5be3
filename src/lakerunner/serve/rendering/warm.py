"""Loads the compiled kernels of rendering before the first client would wait for them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.results import MatrixResult, StepMatrix
from lakerunner.serve.rendering.log_frames import log_frames
from lakerunner.serve.rendering.streams import LINE, METADATA, PARSED, STREAM, TIME, streams_json
from lakerunner.serve.rendering.values import data_json


def warm_rendering() -> None:
    entry = pa.record_batch(
        {
            TIME: pa.array([1], pa.timestamp("ns", "UTC")),
            LINE: pa.array(["line"]),
            **{name: pa.array(["{}"]) for name in (STREAM, METADATA, PARSED)},
        }
    )
    many = entry.take(pa.array([0] * 600))
    for categorized in (False, True):
        # Few and many entries have kernels of their own.
        streams_json([entry], categorized=categorized)
        streams_json([many], categorized=categorized)
    log_frames(entry, b"id", np.array([1]), 0, None)
    times, valid = np.array([1_000]), np.ones((1, 1), dtype=bool)
    # Values that came over Arrow are read-only, and kernels are compiled separately for those.
    computed, received = np.array([[0.5]]), np.array([[0.5]])
    received.flags.writeable = False
    for values in (computed, received):
        data_json(MatrixResult(steps=StepMatrix([LabelSet.of({"a": "b"})], times, values, valid)))
