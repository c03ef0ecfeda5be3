import pickle

import pytest

from lakerunner.model import errors
from lakerunner.model.errors import BadInput, Conflict, Denied, LakeError, LimitHit, Missing, Unavailable


def test_one_line_with_place_reason_and_hint() -> None:
    error = BadInput("cannot read it: it is torn", hint="send it again", where="a.json:3")
    assert str(error) == "a.json:3: cannot read it: it is torn; send it again"


@pytest.mark.parametrize("kind", [BadInput, Conflict, Denied, LimitHit, Missing, Unavailable, errors.Bug])
def test_crosses_a_process_border_whole(kind: type[LakeError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("m", hint="h", where="w")))
    assert (type(copy), copy.message, copy.hint, copy.where) == (kind, "m", "h", "w")


def test_only_unavailable_is_worth_another_try() -> None:
    ours = [kind for kind in LakeError.__subclasses__() if kind.__module__ == errors.__name__]
    assert [kind for kind in ours if kind.retryable] == [Unavailable]


def test_codes_are_distinct() -> None:
    codes = [kind.code for kind in LakeError.__subclasses__() if kind.__module__ == errors.__name__]
    assert len(set(codes)) == len(codes)
