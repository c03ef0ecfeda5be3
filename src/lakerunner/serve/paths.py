"""Names within addresses: any text at all, as labels have, slashes and line breaks included."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class _AnyText(Convertor[str]):
    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


#: `{name:text}` in the path of a route.
register_url_convertor("text", _AnyText())
