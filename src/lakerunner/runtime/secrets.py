"""Hiding of secrets: in settings that are shown, and in every line that is logged.

What is secret is found twice: by its place (the password of an address, the value of `sasl.password=`), and by its text
once the settings are known, because a library may repeat a password anywhere in a message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

STARS = "***"
_ADDRESS_PASSWORD = re.compile(r"(?P<before>://[^:/@\s]*:)(?P<secret>[^@\s]+)(?=@)")
#: Names whose values nobody else may know, as they stand in addresses, options and variables.
_NAMES = r"[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|key|pem|credential|jaas|\bsig)[\w.-]*"
_NAMED = re.compile(rf"(?P<before>(?<![\w.-]){_NAMES}=)(?P<secret>[^&\s]+)", re.IGNORECASE)
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
#: Addresses of webhooks are secrets themselves: whoever knows one may post to it.
_PATH = re.compile(r"(?P<before>https?://[^/\s,]+/)(?P<secret>[^\s,]+)")
#: Shorter texts would hide ordinary words; of variables that only sound secret, more than a word is asked.
_LEAST, _LEAST_VARIABLE = 4, 8
#: Variables of the environment that name something, and hold no secret.
_HARMLESS = re.compile(r"(_FILE|_ID|_PATH|_DIR|_NAME|_LOCATION|_VERSION)$")


def masked(text: str, *, secret: bool = False, address: bool = False) -> str:
    """The text with stars in place of passwords. A `secret` without any structure is all stars.

    >>> masked("postgresql://lake:hush@db/lrdb?sslpassword=hush")
    'postgresql://lake:***@db/lrdb?sslpassword=***'
    >>> masked("https://hooks.example.com/T1/hush", secret=True, address=True)
    'https://hooks.example.com/***'
    """
    if secret and text and "://" not in text and "=" not in text:
        return STARS
    for pattern in _patterns(secret and address):
        text = pattern.sub(lambda found: found["before"] + STARS, text)
    return text


def secrets_in(text: str, *, secret: bool = False, address: bool = False) -> set[str]:
    """The texts that `masked` hides."""
    if secret and text and "://" not in text and "=" not in text:
        return {text}
    found = {match["secret"] for pattern in _patterns(secret and address) for match in pattern.finditer(text)}
    return found | {unquote(each) for each in found}


def _patterns(whole_path: bool) -> tuple[re.Pattern[str], ...]:
    return (_ADDRESS_PASSWORD, _NAMED, *((_PATH,) if whole_path else ()))


def secrets_of_environment(env: Mapping[str, str]) -> set[str]:
    """Values of variables that are named like secrets: credentials of buckets, queues and databases."""
    return {
        value
        for name, value in env.items()
        if _SECRET_NAME.search(name)
        and not _HARMLESS.search(name)
        and len(value) >= _LEAST_VARIABLE
        and not value.startswith("/")
    }


class Hider:
    """A processor of log events that replaces known secrets in every text of an event."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = sorted({each for each in secrets if len(each) >= _LEAST and each != STARS}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    @classmethod
    def of_process(cls, secrets: Iterable[str]) -> Hider:
        return cls({*secrets, *secrets_of_environment(os.environ)})

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if self._known is not None:
            for name, value in event.items():
                event[name] = self.hide(value)
        return event

    def hide(self, value: Any) -> Any:
        if self._known is None:
            return value
        if isinstance(value, str):
            return self._known.sub(STARS, value)
        if isinstance(value, dict):
            return {name: self.hide(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.hide(each) for each in value]
        if isinstance(value, BaseException):
            return self.hide(repr(value))
        return value
