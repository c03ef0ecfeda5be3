"""What `ip("…")` matches: one address, a range or a network, of IPv4 or IPv6."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from lakerunner.model.errors import BadInput

Address = IPv4Address | IPv6Address
_PREFIX_LENGTH = re.compile(r"0|[1-9]\d{0,2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Addresses:
    """From `first` to `last`, both included and of the same version."""

    first: Address
    last: Address
    #: Whether a zone follows the address. Zones are never looked for, so nothing matches.
    zoned: bool = False

    def __contains__(self, address: Address) -> bool:
        if self.zoned:
            return False
        return address.version == self.first.version and int(self.first) <= int(address) <= int(self.last)


def parse_addresses(text: str) -> Addresses:
    """The addresses that a text stands for.

    >>> found = parse_addresses("10.0.0.0/8")
    >>> str(found.first), str(found.last)
    ('10.0.0.0', '10.255.255.255')
    """
    try:
        return _addresses(text)
    except ValueError:
        raise BadInput(
            f"cannot read {text!r} as addresses",
            hint="write 10.0.0.1, 10.0.0.1-10.0.0.9 or 10.0.0.0/8, or the same with IPv6 addresses",
        ) from None


def _addresses(text: str) -> Addresses:
    address, percent, zone = text.partition("%")
    if percent:
        if not zone:
            raise ValueError(text)
        # Everything behind the sign is the zone, a hyphen or a slash too.
        return Addresses(IPv6Address(address), IPv6Address(address), zoned=True)
    first, hyphen, last = text.partition("-")
    if hyphen:
        found = Addresses(ip_address(first), ip_address(last))
        if found.last not in found:
            raise ValueError(text)
        return found
    address, slash, length = text.partition("/")
    if slash:
        # Netmasks are read by Python but not by Go.
        if not _PREFIX_LENGTH.fullmatch(length):
            raise ValueError(text)
        network = ip_network(text, strict=False)
        return Addresses(network.network_address, network.broadcast_address)
    return Addresses(ip_address(text), ip_address(text))
