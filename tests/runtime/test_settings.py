from pathlib import Path

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.settings.load import load_settings, settings_as_env
from lakerunner.runtime.settings.table import TABLE, mask


def write(folder: Path, text: str) -> Path:
    path = folder / "lakerunner.yaml"
    path.write_text(text)
    return path


def test_without_anything_the_defaults_hold() -> None:
    assert load_settings() == Settings()


def test_the_later_source_wins(tmp_path: Path) -> None:
    path = write(tmp_path, "http: {port: 1, host: a}\nlog: {level: debug}\n")
    settings = load_settings(path, {"LAKERUNNER_HTTP_PORT": "2", "LAKERUNNER_HTTP_HOST": "b"}, {"http.port": "3"})
    assert (settings.http.port, settings.http.host, settings.log.level) == (3, "b", "debug")


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    path = write(tmp_path, "bus: {partitions: 3}")
    assert load_settings(env={"LAKERUNNER_CONFIG": str(path)}).bus.partitions == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("http: {prot: 1}", "did you mean http.port?"),
        ("htpp: {port: 1}", "did you mean http?"),
        ("http: {port: x}", "cannot use 'x' for http.port"),
        ("http: {port: 70000}", "less than or equal to 65535"),
        ("log: {level: loud}", "debug | info | warning | error"),
        ("http: 5", "not a mapping"),
        ("- 1", "not a mapping"),
        ("http: {port: [", "line 1, column"),
        ("index: {url: mysql://x}", "postgresql://user:password@host"),
        ("bus: {kind: kafka}", "bus.brokers is empty; set it to host:port"),
        ("store: {url: bucket}", "s3://bucket"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_settings(write(tmp_path, text))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadInput, match="did you mean LAKERUNNER_HTTP_PORT"):
        load_settings(env={"LAKERUNNER_HTPP_PORT": "1"})


def test_an_absent_file_is_said() -> None:
    with pytest.raises(BadInput, match="cannot find the settings file"):
        load_settings(Path("/nowhere/at/all.yaml"))


def test_a_bad_secret_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load_settings(write(tmp_path, "index: {url: {password: hunter2}}"))
    assert "hunter2" not in str(caught.value)


def test_handed_on_as_variables_they_are_the_same() -> None:
    settings = load_settings(overrides={"http.port": 9, "auth.required": "false", "log.level": "error"})
    variables = settings_as_env(settings)
    assert set(variables) == {"LAKERUNNER_HTTP_PORT", "LAKERUNNER_AUTH_REQUIRED", "LAKERUNNER_LOG_LEVEL"}
    assert load_settings(env=variables) == settings


def test_passwords_are_starred() -> None:
    setting = TABLE["index.url"]
    assert mask(setting, "postgresql://u:p%40ss@h/d") == "postgresql://u:***@h/d"
    assert mask(setting, "postgresql:///d?password=x&host=h") == "postgresql:///d?password=***&host=h"


def test_passwords_among_options_are_starred() -> None:
    shown = mask(TABLE["bus.kafka_options"], "sasl.username=lake sasl.password=hunter2 ssl.key.password=x")
    assert shown == "sasl.username=lake sasl.password=*** ssl.key.password=***"


def test_every_setting_has_a_sentence_and_a_variable_of_its_own() -> None:
    assert len({setting.env for setting in TABLE.values()}) == len(TABLE)
    assert all(setting.sentence.endswith((".", "?")) for setting in TABLE.values())


def test_a_secret_may_be_in_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("postgresql://lake:hush@db/lrdb\n")
    by_variable = load_settings(env={"LAKERUNNER_INDEX_URL_FILE": str(secret)})
    by_key = load_settings(write(tmp_path, f"index: {{url_file: {secret}}}"))
    assert by_variable == by_key == load_settings(overrides={"index.url": "postgresql://lake:hush@db/lrdb"})


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"LAKERUNNER_INDEX_URL_FILE": "/nowhere/url"}, "cannot read index.url from the file /nowhere/url"),
        ({"LAKERUNNER_HTTP_PORT_FILE": "/etc/hostname"}, "no setting has this name"),
        ({"LAKERUNNER_INDEX_URL_FILE": "/etc/hostname", "LAKERUNNER_INDEX_URL": "postgresql://db/x"}, "keep one"),
    ],
)
def test_a_secret_in_a_file_that_cannot_be_used_is_said(env: dict[str, str], says: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_settings(env=env)
    assert says in str(caught.value)
