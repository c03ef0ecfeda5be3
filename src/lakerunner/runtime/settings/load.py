"""Load settings from file, environment and command line; later ones win, and each error names its source."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from lakerunner.model.errors import BadInput
from lakerunner.runtime.settings import EMBEDDED, Settings
from lakerunner.runtime.settings.table import TABLE, Setting, sections

ENV_PREFIX = "LAKERUNNER_"
CONFIG_VARIABLE = "LAKERUNNER_CONFIG"
#: Variables with our prefix that are not settings.
_NOT_SETTINGS = frozenset({CONFIG_VARIABLE, "LAKERUNNER_CRASH_POINT", "LAKERUNNER_SUPERVISOR_PID"})
#: A variable or key with this ending names a file that holds the value, as orchestrators mount secrets.
_FILE_ENDING = "_file"
#: Variables with this prefix belong to the test suite.
_TEST_PREFIX = "LAKERUNNER_TEST_"


def load_settings(
    path: Path | None = None, env: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Read and check all settings. An error names the wrong key, its source and what it should be."""
    env = env or {}
    if path is None and env.get(CONFIG_VARIABLE):
        path = Path(env[CONFIG_VARIABLE])
    values: dict[str, Any] = {}
    if path is not None:
        values.update(_from_file(path))
    values.update(_from_env(env))
    for name, value in (overrides or {}).items():
        values[name] = _parse(_setting(name, f"--set {name}"), value, f"--set {name}")
    nested: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        nested.setdefault(section, {})[key] = value
    settings = Settings.model_validate(nested)
    _check_together(settings)
    return settings


def settings_as_env(settings: Settings) -> dict[str, str]:
    """Return every setting that differs from its default as environment variables, for a supervised role."""
    variables = {}
    for name, setting in TABLE.items():
        section, _, key = name.partition(".")
        value = getattr(getattr(settings, section), key)
        if value != setting.default:
            variables[setting.env] = str(value)
    return variables


def _check_together(settings: Settings) -> None:
    if settings.bus.kind == "kafka" and not settings.bus.brokers:
        raise BadInput(
            "cannot use the Kafka bus: bus.brokers is empty", hint="set it to host:port", where="bus.brokers"
        )
    if settings.index.url != EMBEDDED and not settings.index.url.startswith(("postgresql://", "postgres://")):
        raise BadInput(
            "cannot read index.url: it is not an address of PostgreSQL",
            hint="write postgresql://user:password@host:5432/database, or embedded",
            where="index.url",
        )
    if settings.store.url and "://" not in settings.store.url:
        raise BadInput(
            f"cannot read store.url: {settings.store.url!r} is not an address",
            hint="write file:///folder, s3://bucket, gs://bucket or az://container",
            where="store.url",
        )


def _from_file(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"cannot find the settings file {path}", hint="check --config or LAKERUNNER_CONFIG") from None
    except (OSError, UnicodeDecodeError) as reason:
        raise BadInput(
            f"cannot read the settings file {path}: {reason}", hint="check its permissions and encoding"
        ) from None
    except yaml.YAMLError as reason:
        raise BadInput(
            f"cannot read {path} as YAML: {_yaml_problem(reason)}", hint="fix it, then run `lakerunner config check`"
        ) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise BadInput(f"cannot use {path}: it is not a mapping of sections", hint="see docs/configuration.md")
    known = dict(sections())
    values: dict[str, Any] = {}
    for section, body in document.items():
        if section not in known:
            raise BadInput(
                f"cannot use section {section!r}: it does not exist",
                hint=_nearest(str(section), list(known)),
                where=str(path),
            )
        if not isinstance(body, dict):
            raise BadInput(f"cannot use section {section!r}: it is not a mapping of settings", where=str(path))
        for key, value in body.items():
            name = f"{section}.{key}"
            if secret := _secret_in_file(name):
                value = _file_text(secret, str(value), str(path))
            setting = secret or _setting(name, str(path))
            _require_once(setting, values, str(path))
            values[setting.name] = _parse(setting, value, str(path))
    return values


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    by_variable = {setting.env: setting for setting in TABLE.values()}
    values: dict[str, Any] = {}
    for variable, text in env.items():
        if not variable.startswith(ENV_PREFIX) or variable.startswith(_TEST_PREFIX) or variable in _NOT_SETTINGS:
            continue
        setting = by_variable.get(variable)
        if setting is None:
            setting = by_variable.get(variable.removesuffix(_FILE_ENDING.upper()))
            if setting is None or not setting.secret:
                raise BadInput(
                    f"cannot use the variable {variable}: no setting has this name",
                    hint=_nearest(variable, list(by_variable)),
                )
            text = _file_text(setting, text, variable)
        _require_once(setting, values, variable)
        values[setting.name] = _parse(setting, text, variable)
    return values


def _secret_in_file(name: str) -> Setting | None:
    """The secret setting whose value the setting of this name would take from a file."""
    if name in TABLE or not name.endswith(_FILE_ENDING):
        return None
    found = TABLE.get(name.removesuffix(_FILE_ENDING))
    return found if found is not None and found.secret else None


def _file_text(setting: Setting, path: str, where: str) -> str:
    """The content of a file that holds a secret, without the newline that editors leave at its end."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as reason:
        raise BadInput(
            f"cannot read {setting.name} from the file {path}: {reason}",
            hint="check its name and permissions",
            where=where,
        ) from None


def _require_once(setting: Setting, values: Mapping[str, Any], where: str) -> None:
    if setting.name in values:
        raise BadInput(
            f"cannot use {setting.name}: it is given both as a value and by a file", hint="keep one", where=where
        )


def _setting(name: str, where: str) -> Setting:
    if name not in TABLE:
        raise BadInput(
            f"cannot use the setting {name!r}: it does not exist", hint=_nearest(name, list(TABLE)), where=where
        )
    return TABLE[name]


def _parse(setting: Setting, value: Any, where: str) -> Any:
    try:
        return setting.parse(value)
    except ValidationError as errors:
        reason = errors.errors()[0]["msg"].lower()
        shown = "the value given" if setting.secret else repr(value)
        raise BadInput(
            f"cannot use {shown} for {setting.name}: {reason}",
            hint=f"it takes {setting.type_name}, by default {setting.default_text or 'empty'}",
            where=where,
        ) from None


def _nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1, 0.5)
    return f"did you mean {near[0]}?" if near else "see `lakerunner config show` for all names"


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error).splitlines()[0]
