"""Raw samples and their tiers in memory, read as the lake reads segments: cut by tier, decoded, merged."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakerunner.model.segment import RAW_TIER_S
from lakerunner.model.signals.tiers import ROLLED_TIERS_S
from lakerunner.model.time import NS_PER_MS
from lakerunner.pipeline.rollup.roll_up import roll_up
from lakerunner.query.plan.leaf import Leaf, Piece
from lakerunner.query.plan.tiers import TierChoice, TierStretch, choose_tiers
from lakerunner.query.scan.samples.decoded import choose, decoded
from lakerunner.query.scan.samples.merge import merge
from lakerunner.query.scan.samples.rollups import needed
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.scan.samples.segment import _marked
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.reading import RAW, Reading
from tests.query.lake_of_series import samples_table


@dataclass
class TieredSource:
    """Reads the tiers of a source of raw samples where `stretches` allow it."""

    loaded: MemorySource
    stretches: Sequence[TierStretch] = ()
    choices: list[TierChoice] = field(default_factory=list)

    def __post_init__(self) -> None:
        raw = samples_table(list(self.loaded._series.values()))
        self.tables: dict[int, pa.Table] = {RAW_TIER_S: raw}
        for tier_s in ROLLED_TIERS_S:
            self.tables[tier_s] = roll_up(raw, tier_s)
        self._labels = {labels.tid(): labels for labels in self.loaded._series}
        self._org = uuid.uuid4()

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        leaf = Leaf.of_samples(matchers, start_ms, end_ms, reading)
        choice = choose_tiers(leaf, self.stretches)
        self.choices.append(choice)
        pieces = choice.pieces or (Piece(RAW_TIER_S, start_ms, end_ms),)
        parts = [self._read(piece, matchers, reading, start_ms) for piece in pieces]
        return merge([part for part in parts if len(part)], self._org, start_ms)

    def _read(self, piece: Piece, matchers: Sequence[Matcher], reading: Reading, start_ms: int) -> Samples:
        need = needed(reading.need, piece.tier_s)
        whole = decoded(self.tables[piece.tier_s], need).samples
        wanted = [all(m.matches(self._labels[tid].get(m.name)) for m in matchers) for tid in whole.tids.tolist()]
        part, _ = choose(whole, np.array(wanted, np.bool_), max(piece.start_ms, start_ms), piece.end_ms)
        part = replace(part, labels=[self._labels[tid] for tid in part.tids.tolist()])
        return part if need is None else _marked([part], need, stored=True)[0]


def stretch(tier_s: int, start_ms: int, end_ms: int) -> TierStretch:
    return TierStretch(tier_s, start_ms * NS_PER_MS, end_ms * NS_PER_MS)
