from __future__ import annotations

import gzip
import os
import resource

import pytest
import zstandard

from lakerunner.formats.compression import expand
from lakerunner.formats.limits import Limits
from lakerunner.model.errors import BadInput, LimitHit

BODY = b"line of telemetry\n" * 5_000
COMPRESS = {"gzip": gzip.compress, "zstd": zstandard.compress}


@pytest.fixture(params=sorted(COMPRESS))
def compress(request: pytest.FixtureRequest):
    return COMPRESS[request.param]


def test_plain_content_is_left_alone():
    assert expand(BODY, Limits()) == BODY
    assert expand(b"", Limits()) == b""


def test_compressed_content_is_expanded(compress):
    assert expand(compress(BODY), Limits()) == BODY
    assert expand(compress(b""), Limits()) == b""


def test_members_follow_one_another(compress):
    assert expand(compress(BODY) + compress(b"more"), Limits()) == BODY + b"more"


def test_only_one_layer_is_taken_off(compress):
    inner = compress(BODY)
    assert expand(compress(inner), Limits()) == inner


@pytest.mark.parametrize("cut", [1, 8, 100])
def test_truncated_content_is_refused(compress, cut):
    with pytest.raises(BadInput, match="cannot decompress"):
        expand(compress(os.urandom(5_000))[:-cut], Limits())


def test_rubbish_after_the_end_is_refused(compress):
    with pytest.raises(BadInput, match="cannot decompress"):
        expand(compress(BODY) + b"rubbish", Limits())


def test_a_skippable_frame_may_come_first():
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    assert expand(skippable + zstandard.compress(BODY), Limits()) == BODY


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (Limits(compressed_bytes=10), "compressed_bytes"),
        (Limits(expanded_bytes=10_000), "expanded_bytes"),
    ],
)
def test_each_limit_names_itself(compress, limits, named):
    with pytest.raises(LimitHit, match=named):
        expand(compress(BODY), limits)


def test_a_bomb_is_refused_by_its_ratio_within_bounded_memory(compress):
    bomb = compress(bytes(1 << 30))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LimitHit, match="ratio"):
        expand(bomb, Limits(expanded_bytes=1 << 40, ratio=20))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 200 * 1024


def test_a_small_repetitive_object_is_no_bomb(compress):
    assert len(expand(compress(b"a" * (1 << 20)), Limits(ratio=10))) == 1 << 20
