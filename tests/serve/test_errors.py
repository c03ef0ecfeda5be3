import json

import pytest

from lakerunner.model.errors import BadInput, Bug, Conflict, Denied, LakeError, LimitHit, Missing, Unavailable
from lakerunner.serve.errors import failure


@pytest.mark.parametrize(
    ("kind", "status"),
    [(BadInput, 400), (Denied, 401), (Missing, 404), (Conflict, 409), (LimitHit, 422), (Bug, 500), (Unavailable, 503)],
)
def test_one_shape_and_one_status_a_class(kind: type[LakeError], status: int) -> None:
    answer = failure(kind("m", hint="h", where="w"))
    assert answer.status_code == status
    assert json.loads(bytes(answer.body)) == {"error": {"code": kind.code, "message": "m", "hint": "h", "where": "w"}}
    assert ("retry-after" in answer.headers) == kind.retryable
