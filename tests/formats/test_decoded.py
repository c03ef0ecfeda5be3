from __future__ import annotations

import numpy as np

from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.read import read_object
from lakerunner.model.row_report import Effect, RowReport, Sample
from lakerunner.model.signals import LOGS


def test_samples_are_few_short_and_safe_to_show():
    tally = Tally()
    hostile = "[/red]\x1b[2J\0\u202e" + "x" * 1_000_000
    for number in range(10):
        tally.reject("bad_row", where=f"row {number}", excerpt=hostile)
        tally.shorten("value_bytes", 2, excerpt=hostile)
    assert tally.rejected == {"bad_row": 10} and tally.cut == {"value_bytes": 20}
    for seen in tally.samples.values():
        assert len(seen) == 3
        for sample in seen:
            assert sample.excerpt.startswith("[/red]\\x1b[2J\\x00\\u202exxx")
            assert len(sample.excerpt) == 160 and sample.excerpt.isprintable()


def test_rows_of_a_mask_are_named_by_their_numbers():
    tally = Tally()
    tally.reject_rows("no_timestamp", np.array([False, True, True]))
    tally.reject_rows("never", np.zeros(3, np.bool_))
    assert tally.rejected == {"no_timestamp": 2}
    assert tally.samples == {"no_timestamp": [Sample("record 2", ""), Sample("record 3", "")]}


def test_an_object_reports_what_was_rejected_and_what_was_changed():
    lines = b'{"ts": 1, "message": "a", "note": "0123456789"}\n{"ts": 1, \x1b[31m}\n'
    decoded = read_object(lines, LOGS, "x.json", Limits(value_bytes=4))
    assert decoded.tables[""].column("attr_note").to_pylist() == ["0123"]
    rejected, changed = decoded.reports()
    assert (rejected.effect, rejected.reason, rejected.rows) == (Effect.REJECTED, "bad_json", 1)
    assert rejected.samples[0].where.startswith("line 2") and "\\x1b[31m" in rejected.samples[0].excerpt
    assert changed == RowReport(Effect.CHANGED, "value_bytes", 1, (Sample("", "0123"),))
