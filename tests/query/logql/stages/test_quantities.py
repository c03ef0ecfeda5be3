"""Values of labels that are no numbers, with the error texts of Go's libraries."""

from __future__ import annotations

import pytest

from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.quantities import size


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("", '""'), ("KB", '""'), ("1.2.3KB", '"1.2.3"'), ("１KB", '"\\xef"'), ("٣,٤", '"٣"'), ("1１", '"1\\xef"')],
)
def test_digits_of_other_scripts_are_no_size(text: str, quoted: str) -> None:
    with pytest.raises(GoError) as refusal:
        size(text)
    assert str(refusal.value) == f"strconv.ParseFloat: parsing {quoted}: invalid syntax"
