"""Values of labels that are no numbers, with the error texts of Go's libraries."""

from __future__ import annotations

import pytest

from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.quantities import nanoseconds, size


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("", '""'), ("KB", '""'), ("1.2.3KB", '"1.2.3"'), ("１KB", '"\\xef"'), ("٣,٤", '"٣"'), ("1１", '"1\\xef"')],
)
def test_digits_of_other_scripts_are_no_size(text: str, quoted: str) -> None:
    with pytest.raises(GoError) as refusal:
        size(text)
    assert str(refusal.value) == f"strconv.ParseFloat: parsing {quoted}: invalid syntax"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1s5", 'missing unit in duration "1s5"'),
        ("1h2x", 'unknown unit "x" in duration "1h2x"'),
        # What is too long is found before what follows it is read.
        ("99999999999h2x", 'invalid duration "99999999999h2x"'),
        ("2562047h48m2x", 'invalid duration "2562047h48m2x"'),
        ("9223372036.9s2x", 'invalid duration "9223372036.9s2x"'),
        ("9223372036.8s2x", 'unknown unit "x" in duration "9223372036.8s2x"'),
    ],
)
def test_the_first_fault_of_a_duration_is_named(text: str, reason: str) -> None:
    with pytest.raises(GoError) as refusal:
        nanoseconds(text)
    assert str(refusal.value) == f"time: {reason}"
