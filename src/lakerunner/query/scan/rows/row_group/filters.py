"""What the filters of a row group prove: that no value is a text (bloom), or contains one (needles)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from lakerunner.query.scan.rows.conditions.predicate import Compare, Contains, In, Leaf, Matches, Op, Text
from lakerunner.query.scan.rows.conditions.prune import NEVER, UNKNOWN, Verdict
from lakerunner.query.scan.rows.conditions.required_texts import Clause, required_texts
from lakerunner.query.scan.rows.conditions.substring import Needle
from lakerunner.query.scan.rows.opened import BadSegment
from lakerunner.query.scan.rows.parquet import bloom
from lakerunner.query.scan.rows.row_group.facts import GroupFacts
from lakerunner.store import needles

#: Texts, and pieces of a text, that are looked up. Each costs a read of 32 bytes.
_MAX_PROBES = 64


def by_bloom(group: GroupFacts, leaf: Leaf) -> Verdict:
    """The verdict of bloom filters on a condition."""
    texts: list[str] = []
    match leaf:
        case Compare(_, Op.EQUAL, Text(text)):
            texts = [text]
        case In(_, values) if len(values) <= _MAX_PROBES and all(isinstance(value, Text) for value in values):
            texts = [value.value for value in values if isinstance(value, Text)]
    return _never_if_all(group, leaf, lambda name: _blooms_lack(group, name, texts)) if texts else UNKNOWN


def by_needles(group: GroupFacts, leaf: Leaf) -> Verdict:
    """The verdict of needle filters on a condition."""
    clauses = _clauses(leaf)
    return _never_if_all(group, leaf, lambda name: _needles_lack(group, name, clauses)) if clauses else UNKNOWN


def _never_if_all(group: GroupFacts, leaf: Leaf, lacks: Callable[[str], bool]) -> Verdict:
    """NEVER if every column that may hold the value lacks what the condition needs."""
    footer, names = group.footer, leaf.ref.names()
    if any(footer.may_overflow(name, group.number) for name in names):
        return UNKNOWN
    holders = [name for name in names if name in footer.fields and not group.bounds(name).all_null]
    return NEVER if all(map(lacks, holders)) else UNKNOWN


def _blooms_lack(group: GroupFacts, name: str, texts: Sequence[str]) -> bool:
    kind = group.footer.fields[name].type
    if not pa.types.is_string(kind.value_type if pa.types.is_dictionary(kind) else kind):
        return False
    chunk = group.chunk(name)
    hashes = [bloom.hash_of(text) for text in texts]
    offsets = [bloom.block_place(chunk.bloom_filter_offset, chunk.bloom_filter_length, each) for each in hashes]
    known = [offset for offset in offsets if offset is not None]
    if len(known) != len(hashes):
        return False
    blocks = group.read([(offset, bloom.BLOCK_BYTES) for offset in known])
    return not any(bloom.may_hold(block, each) for block, each in zip(blocks, hashes, strict=True))


def _needles_lack(group: GroupFacts, name: str, clauses: Sequence[Clause]) -> bool:
    filters = group.footer.needles.get(name)
    place = filters[group.number] if filters else None
    if place is None:
        return False
    return not all(any(_may_contain(group, place, needle) for needle in clause) for clause in clauses)


def _may_contain(group: GroupFacts, place: needles.NeedleFilter, needle: Needle) -> bool:
    if place.lacks_mark_of(needle.text):
        return False
    pieces = () if needle.ignore_case else place.pieces_of(needle.text.encode())[:_MAX_PROBES]
    # Two pieces exclude most texts that are not there: those whose blocks are farthest apart, because blocks nearby
    # would be read together with what lies between them.
    for some in (pieces[:: max(1, len(pieces) - 1)], pieces[1:-1]):
        blocks = group.read([(place.block_offset(piece), needles.BLOCK_BYTES) for piece in some]) if some else []
        try:
            if not all(needles.may_hold(block, piece) for block, piece in zip(blocks, some, strict=True)):
                return False
        except ValueError as reason:
            raise BadSegment(group.segment, reason) from reason
    return True


def _clauses(leaf: Leaf) -> Sequence[Clause]:
    """Clauses of texts. Every value that satisfies the condition contains a text of each."""
    match leaf:
        case Contains(_, text) | Compare(_, Op.EQUAL, Text(text)):
            return [(Needle(text),)]
        case In(_, values) if len(values) <= _MAX_PROBES and all(isinstance(value, Text) for value in values):
            return [tuple(Needle(value.value) for value in values if isinstance(value, Text))]
        case Matches():
            return required_texts(leaf.expression).clauses
        case _:
            return []
