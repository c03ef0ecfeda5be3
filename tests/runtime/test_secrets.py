"""Secrets of every kind are planted, and must be nowhere: not in the shown settings, and not in any line of the log."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from lakerunner.runtime.secrets import Hider
from lakerunner.runtime.settings.load import load_settings
from lakerunner.runtime.settings.table import TABLE, mask, secret_texts

#: Every place of a secret, with the text that must not be seen.
PLANTED = {
    "index.url": ("postgresql://lake:{}@db/lrdb?sslmode=require&sslpassword={}", "pg%2Fhush-1"),
    "bus.kafka_options": (
        "sasl.username=lake sasl.password={} ssl.key.password={} sasl.oauthbearer.client.secret={}",
        "k-hush-2",
    ),
    "query.worker_token": ("{}", "w-hush-3"),
    "api.key": ("{}", "a-hush-4"),
    "monitor.webhooks": ("https://hooks.example.com/services/{},https://me:{}@other.example.com/x", "m-hush-5"),
    "ruler.webhooks": ("https://hooks.example.com/{}", "r-hush-6"),
    "monitor.alertmanagers": ("https://me:{}@alerts.example.com", "b-hush-7"),
    "ruler.alertmanagers": ("https://me:{}@alerts.example.com", "c-hush-8"),
    "store.endpoint": ("https://me:{}@minio.example.com", "s-hush-9"),
    "intake.azure_queue": ("https://a.queue.example.com/q?sv=1&sig={}", "q-hush-10"),
    "telemetry.otlp_endpoint": ("http://me:{}@127.0.0.1:9", "t-hush-11"),
    "spark.options": ("spark.authenticate.secret={} spark.x=1", "x-hush-12"),
}
ENV = {TABLE[name].env: text.replace("{}", hush) for name, (text, hush) in PLANTED.items()}
BUCKET = {"AWS_SECRET_ACCESS_KEY": "aws-hush-13", "AZURE_STORAGE_KEY": "az-hush-14", "AWS_SESSION_TOKEN": "st-hush-15"}


def test_every_secret_setting_is_planted() -> None:
    assert {name for name, setting in TABLE.items() if setting.secret} <= set(PLANTED)


@pytest.mark.parametrize("name", PLANTED)
def test_a_shown_setting_has_no_secret(name: str) -> None:
    section, _, key = name.partition(".")
    shown = mask(TABLE[name], getattr(getattr(load_settings(env=ENV), section), key))
    assert "hush" not in shown and "***" in shown


def test_what_is_not_secret_is_shown() -> None:
    assert mask(TABLE["index.url"], "embedded") == "embedded"
    assert mask(TABLE["store.url"], "s3://bucket/folder") == "s3://bucket/folder"
    assert mask(TABLE["bus.kafka_options"], "security.protocol=SASL_SSL") == "security.protocol=SASL_SSL"
    assert mask(TABLE["api.key"], "") == ""


def test_commands_show_none() -> None:
    for output in ("text", "json"):
        command = [sys.executable, "-m", "lakerunner", "config", "show", "-o", output]
        done = subprocess.run(command, env={**os.environ, **ENV}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "hush" not in done.stdout + done.stderr


SCRIPT = """
import logging, os
from lakerunner.runtime.settings.load import load_settings
from lakerunner.runtime.telemetry import configure_telemetry, log
settings = load_settings(env={k: v for k, v in os.environ.items() if k != "LAKERUNNER_TELEMETRY_OTLP_ENDPOINT"})
configure_telemetry("toy", settings)
texts = [value for value in os.environ.values() if "hush" in value]
for text in texts:
    log().info(text, url=text, more={"deep": [text]}, error=ValueError(text))
    logging.getLogger("library").warning("cannot use %s", text)
    try:
        raise RuntimeError(text)
    except RuntimeError:
        log().exception("failed")
        logging.getLogger("library").exception("failed")
"""


@pytest.mark.parametrize("shape", ["json", "text"])
def test_logs_have_none(shape: str) -> None:
    env = {**os.environ, **ENV, **BUCKET, "LAKERUNNER_LOG_FORMAT": shape, "PYTHONPATH": os.pathsep.join(sys.path)}
    del env["LAKERUNNER_TELEMETRY_OTLP_ENDPOINT"]
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("***") > len(ENV)
    assert [line for line in done.stderr.splitlines() if "hush" in line] == []
    if shape == "json":
        assert all(json.loads(line) for line in done.stderr.splitlines())


def test_a_password_is_hidden_as_it_is_written_and_as_it_is_meant() -> None:
    found = secret_texts(load_settings(env=ENV))
    assert {"pg%2Fhush-1", "pg/hush-1"} <= found
    event = Hider(found)(None, "", {"event": "cannot log in as lake with pg/hush-1", "tries": 3})
    assert event == {"event": "cannot log in as lake with ***", "tries": 3}
