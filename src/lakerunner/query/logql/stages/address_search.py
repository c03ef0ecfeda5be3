"""Texts that mention an address: what `ip("…")` looks for in lines and in labels."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import numpy as np
import pyarrow as pa

from lakerunner.query.logql.addresses import Addresses
from lakerunner.query.logql.entries import Check, Mask
from lakerunner.query.logql.stages import address_kernel
from lakerunner.query.logql.stages.fields import Fields, column_of, room_for_fields
from lakerunner.query.logql.stages.texts import bytes_of, slices

_FIRST_ROOM = 1 << 14


def mentioning(texts: pa.StringArray, addresses: Addresses, check: Check) -> Mask:
    """The texts in which one of the addresses stands. Each distinct address found is read once."""
    data, offsets = bytes_of(texts)
    found, room = np.zeros(len(texts), np.bool_), _FIRST_ROOM
    for begin, end in slices(offsets):
        while begin < end:
            check()
            out = room_for_fields(room)
            stopped, used, full = address_kernel.candidates(data, offsets, begin, end, out)
            candidates = Fields(data, *(column[:used] for column in out))
            found[candidates.rows[_matching(candidates, addresses)]] = True
            room = room * 2 if full else room
            begin = stopped
    return found


def _matching(candidates: Fields, addresses: Addresses) -> Mask:
    order = np.arange(len(candidates.rows))
    texts = column_of(replace(candidates, rows=order.astype(np.int32)), order, len(order), False).dictionary_encode()
    wanted = np.array([_is_one(text, addresses) for text in texts.dictionary.to_pylist()], np.bool_)
    matching: Mask = wanted[texts.indices.to_numpy()] if len(order) else np.zeros(0, np.bool_)
    return matching


def _is_one(text: str, addresses: Addresses) -> bool:
    try:
        return ip_address(text) in addresses
    except ValueError:
        return False
