"""The settings as a table of name, type, default and description, for everything that shows or checks settings."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from lakerunner.runtime.secrets import masked, secrets_in
from lakerunner.runtime.settings import Section, Settings


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type_name: str
    default: Any
    sentence: str
    secret: bool
    annotation: Any

    @property
    def env(self) -> str:
        """The environment variable.

        >>> Setting("index.url", "text", "", "", True, str).env
        'LAKERUNNER_INDEX_URL'
        """
        return "LAKERUNNER_" + self.name.replace(".", "_").upper()

    @property
    def default_text(self) -> str:
        if isinstance(self.default, bool):
            return "true" if self.default else "false"
        if isinstance(self.default, float) and self.default.is_integer():
            return str(int(self.default))
        return str(self.default)

    def parse(self, value: Any) -> Any:
        """Convert the value to its type, or raise pydantic's ValidationError."""
        return TypeAdapter(self.annotation).validate_python(value)


def sections() -> Iterator[tuple[str, type[Section]]]:
    for name, field in Settings.model_fields.items():
        assert isinstance(field.annotation, type) and issubclass(field.annotation, Section)
        yield name, field.annotation


def _rows() -> Iterator[Setting]:
    for section_name, section in sections():
        for name, field in section.model_fields.items():
            assert field.description, f"setting {section_name}.{name} needs a sentence"
            extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
            yield Setting(
                name=f"{section_name}.{name}",
                type_name=_type_name(field.annotation),
                default=field.get_default(call_default_factory=True),
                sentence=field.description,
                secret=bool(extra.get("secret")),
                annotation=_with_constraints(field),
            )


def mask(setting: Setting, value: Any) -> Any:
    """Return the value with the passwords in it replaced by stars.

    >>> mask(TABLE["index.url"], "postgresql://lake:secret@db/lrdb")
    'postgresql://lake:***@db/lrdb'
    """
    if not isinstance(value, str) or value == setting.default:
        return value
    return masked(value, **_kind(setting))


def secret_texts(settings: Settings) -> set[str]:
    """Every password, token and key in the settings, for code that must not repeat them."""
    found: set[str] = set()
    for name, setting in TABLE.items():
        section, _, key = name.partition(".")
        value = getattr(getattr(settings, section), key)
        if isinstance(value, str) and value != setting.default:
            found |= secrets_in(value, **_kind(setting))
    return found


def _kind(setting: Setting) -> dict[str, bool]:
    # Of the settings that are secret, webhooks are those whose whole address is.
    return {"secret": setting.secret, "address": setting.name.endswith(".webhooks")}


def _with_constraints(field: FieldInfo) -> Any:
    return typing.Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _type_name(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Literal:
        return " | ".join(typing.get_args(annotation))
    if isinstance(annotation, types.UnionType):
        return " | ".join(_type_name(part) for part in typing.get_args(annotation))
    names = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    return names.get(annotation, "path")


#: Name -> row, in the order of the documentation.
TABLE: dict[str, Setting] = {row.name: row for row in _rows()}
