"""Texts that mention an address: what `ip("…")` looks for in lines and in labels."""

from __future__ import annotations

from ipaddress import ip_address

import numpy as np
import pyarrow as pa

from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.logql.addresses import Addresses
from lakerunner.query.logql.entries import Check, Mask
from lakerunner.query.logql.stages import address_kernel
from lakerunner.query.logql.stages.field_kernels import ROW
from lakerunner.query.logql.stages.fields import Fields, column_texts, room_for_fields
from lakerunner.query.logql.stages.texts import slices

_FIRST_ROOM = 1 << 14


def mentioning(texts: pa.StringArray, addresses: Addresses, check: Check) -> Mask:
    """The texts in which one of the addresses stands. Each distinct address found is read once."""
    data, offsets = text_bytes(texts)
    found, room = np.zeros(len(texts), np.bool_), _FIRST_ROOM
    for begin, end in slices(offsets):
        while begin < end:
            check()
            out = room_for_fields(room)
            stopped, used, full = address_kernel.candidates(data, offsets, begin, end, out)
            candidates = Fields(data, out[:used])
            found[candidates.rows[_matching(candidates, addresses)]] = True
            room = room * 2 if full else room
            begin = stopped
    return found


def _matching(candidates: Fields, addresses: Addresses) -> Mask:
    total = len(candidates.rows)
    apart = candidates.parts.copy()
    apart[:, ROW] = np.arange(total)
    (texts,) = column_texts(Fields(candidates.data, apart), np.zeros(total, np.int32), 1, total)
    if texts is None:
        return np.zeros(0, np.bool_)
    distinct = texts.dictionary_encode()
    wanted = np.array([_is_one(text, addresses) for text in distinct.dictionary.to_pylist()], np.bool_)
    matching: Mask = wanted[distinct.indices.to_numpy()]
    return matching


def _is_one(text: str, addresses: Addresses) -> bool:
    try:
        return ip_address(text) in addresses
    except ValueError:
        return False
