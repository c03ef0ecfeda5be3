"""What `ip("…")` accepts, and what that matches."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.query.logql.addresses import parse_addresses


@pytest.mark.parametrize("text", ["fe80::1%eth0", "fe80::1%eth0-fe80::9", "fe80::1%eth0/64", "::ffff:1.2.3.4%x"])
def test_an_address_with_a_zone_matches_nothing(text: str) -> None:
    assert ip_address("fe80::1") not in parse_addresses(text)


@pytest.mark.parametrize("text", ["fe80::1%", "%eth0", "10.0.0.1%eth0", "fe80::1-fe80::2%eth0", "fe80::/64%eth0"])
def test_only_an_ipv6_address_has_a_zone(text: str) -> None:
    with pytest.raises(BadInput, match="as addresses"):
        parse_addresses(text)
