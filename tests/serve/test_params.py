"""Parameters of requests are read as the standard library reads them."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import BadInput
from lakerunner.serve.params import Params


@given(st.text(st.sampled_from("ab=&+%;20fFé\udc80 "), max_size=30))
def test_fields_are_those_of_the_standard_library(text: str) -> None:
    expected = parse_qs(text, keep_blank_values=True, errors="surrogateescape")
    params = Params.in_url(text)
    assert {name: params.texts(name) for name in expected} == expected
    assert all(params.text(name) == values[0] for name, values in expected.items())
    assert params._values.keys() == expected.keys()


def test_a_missing_field_has_the_default() -> None:
    params = Params.in_url("empty=&flag=true")
    assert (params.text("missing", "default"), params.text("empty", "default")) == ("default", "")
    assert params.flag("flag")
    assert not params.flag("empty")


def test_too_many_fields_are_refused() -> None:
    Params.in_url("&".join(["a=1"] * 1_000))
    with pytest.raises(BadInput, match="more than 1000 parameters"):
        Params.in_url("&".join(["a=1"] * 1_001))
