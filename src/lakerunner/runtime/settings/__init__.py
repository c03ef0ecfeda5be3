"""All settings: the source for the YAML file, the environment, `--help` and docs/configuration.md."""

from lakerunner.runtime.settings.all import Settings
from lakerunner.runtime.settings.api import ApiSettings, AuthSettings, LimitSettings
from lakerunner.runtime.settings.connections import EMBEDDED, BusSettings, DataSettings, IndexSettings, StoreSettings
from lakerunner.runtime.settings.intake import DemoSettings, FormatsSettings, IntakeSettings
from lakerunner.runtime.settings.lifetime import DeleteSettings, RetentionSettings, SweepSettings, UpkeepSettings
from lakerunner.runtime.settings.monitoring import CanarySettings, MonitorSettings
from lakerunner.runtime.settings.pipeline import PipelineSettings, SparkSettings
from lakerunner.runtime.settings.process import HttpSettings, LogSettings, ServeSettings, TelemetrySettings
from lakerunner.runtime.settings.query import QuerySettings
from lakerunner.runtime.settings.rules import DeriveSettings, RulerSettings
from lakerunner.runtime.settings.section import Section

__all__ = [
    "EMBEDDED",
    "ApiSettings",
    "AuthSettings",
    "BusSettings",
    "CanarySettings",
    "DataSettings",
    "DeleteSettings",
    "DemoSettings",
    "DeriveSettings",
    "FormatsSettings",
    "HttpSettings",
    "IndexSettings",
    "IntakeSettings",
    "LimitSettings",
    "LogSettings",
    "MonitorSettings",
    "PipelineSettings",
    "QuerySettings",
    "RetentionSettings",
    "RulerSettings",
    "Section",
    "ServeSettings",
    "Settings",
    "SparkSettings",
    "StoreSettings",
    "SweepSettings",
    "TelemetrySettings",
    "UpkeepSettings",
]
