"""All sections of settings in one object."""

from __future__ import annotations

from pydantic import Field

from lakerunner.runtime.settings.api import ApiSettings, AuthSettings
from lakerunner.runtime.settings.connections import BusSettings, DataSettings, IndexSettings, StoreSettings
from lakerunner.runtime.settings.intake import DemoSettings, FormatsSettings, IntakeSettings
from lakerunner.runtime.settings.lifetime import DeleteSettings, RetentionSettings, SweepSettings, UpkeepSettings
from lakerunner.runtime.settings.monitoring import CanarySettings, MonitorSettings
from lakerunner.runtime.settings.pipeline import PipelineSettings, SparkSettings
from lakerunner.runtime.settings.process import HttpSettings, LogSettings, ServeSettings, TelemetrySettings
from lakerunner.runtime.settings.query import QuerySettings
from lakerunner.runtime.settings.rules import DeriveSettings, RulerSettings
from lakerunner.runtime.settings.section import Section


class Settings(Section):
    """All settings."""

    data: DataSettings = Field(default_factory=DataSettings)
    index: IndexSettings = Field(default_factory=IndexSettings)
    bus: BusSettings = Field(default_factory=BusSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    intake: IntakeSettings = Field(default_factory=IntakeSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    serve: ServeSettings = Field(default_factory=ServeSettings)
    upkeep: UpkeepSettings = Field(default_factory=UpkeepSettings)
    derive: DeriveSettings = Field(default_factory=DeriveSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    sweep: SweepSettings = Field(default_factory=SweepSettings)
    monitor: MonitorSettings = Field(default_factory=MonitorSettings)
    ruler: RulerSettings = Field(default_factory=RulerSettings)
    canary: CanarySettings = Field(default_factory=CanarySettings)
    delete: DeleteSettings = Field(default_factory=DeleteSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)
    query: QuerySettings = Field(default_factory=QuerySettings)
    formats: FormatsSettings = Field(default_factory=FormatsSettings)
    demo: DemoSettings = Field(default_factory=DemoSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)

    @property
    def store_url(self) -> str:
        """The address of the bucket; the default is a folder under data.dir."""
        return self.store.url or (self.data.dir.resolve() / "bucket").as_uri()
