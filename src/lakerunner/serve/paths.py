"""A URL path parameter for label names, which may contain any text, including slashes and line breaks."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class _AnyText(Convertor[str]):
    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


# Makes `{name:text}` available in route paths.
register_url_convertor("text", _AnyText())
