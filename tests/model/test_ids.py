import uuid

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.ids import fresh_id, hashed_id

part_lists = st.lists(st.binary(max_size=4), max_size=4)


def test_fresh_ids_sort_by_their_making() -> None:
    ids = [fresh_id() for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    assert all(each.version == 7 and each.variant == uuid.RFC_4122 for each in ids)
    assert [each.int >> 80 for each in ids] == sorted(each.int >> 80 for each in ids)


@given(part_lists, part_lists)
def test_hashed_ids_tell_parts_apart(first: list[bytes], second: list[bytes]) -> None:
    assert (hashed_id(*first) == hashed_id(*second)) == (first == second)


def test_a_hashed_id_never_changes() -> None:
    # Written into every ledger: another value here would ingest everything once more.
    assert hashed_id(b"s3://raw", b"key", b"v1") == uuid.UUID("80eebfbd-193e-8514-823d-864da5e5bb11")
