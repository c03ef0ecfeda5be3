"""The role `pubsub`: one thread per configured source, the webhook, and the reconciliation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from starlette.routing import BaseRoute

from lakerunner.index.role import IndexedRole
from lakerunner.intake.azure import AzureQueueSource
from lakerunner.intake.folder import FolderSource, Watched, watched_folders
from lakerunner.intake.gcp import PubsubSource
from lakerunner.intake.loop import SourceLoop
from lakerunner.intake.metrics import INTAKE_METRICS
from lakerunner.intake.reconcile import Reconciler
from lakerunner.intake.record import Recorder
from lakerunner.intake.source import EventSource
from lakerunner.intake.sqs import SqsSource
from lakerunner.intake.webhook import webhook_routes
from lakerunner.model.errors import Bug, LakeError
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.role import Probe
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log


class Pubsub(IndexedRole):
    name = "pubsub"
    sentence = "Discover new raw objects by queue, webhook or folder, and record each in the ledger once."
    registries = (INTAKE_METRICS,)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._recorder = Recorder(settings, self.database)
        self._sources: list[EventSource] = []
        self._loops: list[SourceLoop] = []

    def start(self) -> None:
        super().start()
        _watched(self._recorder)
        if not self._sources:
            self._sources = _sources(self.settings, self._recorder)
            self._loops = [SourceLoop(source, self._recorder, self.settings.intake.batch) for source in self._sources]

    def run(self, stop: Stop) -> None:
        log().info("intake running", sources=[loop.name for loop in self._loops], webhook=self.settings.intake.webhook)
        failed: list[BaseException] = []
        work: list[Callable[[Stop], None]] = [loop.run for loop in self._loops]
        if self.settings.intake.reconcile_interval_s:
            work.append(Reconciler(self._recorder, self.database, self.settings.intake).run)
        threads = [threading.Thread(target=_guarded, args=(each, stop, failed), daemon=True) for each in work]
        for thread in threads:
            thread.start()
        while not stop.wait(0.2) and not failed:
            pass
        if failed:
            # A dead thread means a source that nobody reads, so the whole process is restarted.
            raise Bug(f"cannot continue intake: {type(failed[0]).__name__}: {failed[0]}") from failed[0]
        for thread in threads:
            thread.join()

    def probes(self) -> Mapping[str, Probe]:
        return {**super().probes(), **{loop.name: loop.probe for loop in self._loops}}

    def routes(self) -> Sequence[BaseRoute]:
        if not self.settings.intake.webhook:
            return ()
        return webhook_routes(self.settings, self.database, self._recorder)

    def close(self) -> None:
        for source in self._sources:
            source.close()
        self._recorder.close()
        super().close()


def _sources(settings: Settings, recorder: Recorder) -> list[EventSource]:
    intake = settings.intake
    sources: list[EventSource] = []
    if intake.sqs_url:
        sources.append(SqsSource(settings))
    if intake.pubsub_subscription:
        sources.append(PubsubSource(settings))
    if intake.azure_queue:
        sources.append(AzureQueueSource(settings))
    if intake.folder:
        # Profiles may add folders at any time, so the watched folders are read again for every scan.
        sources.append(FolderSource(lambda: _watched(recorder), intake))
    return sources


def _watched(recorder: Recorder) -> list[Watched]:
    key_map = recorder.key_map()
    folders = watched_folders(key_map)
    for folder in folders:
        try:
            # Creates the folder once per process: one that vanishes later is an unmounted disk.
            recorder.store(key_map, folder.bucket)
        except LakeError as error:
            # The scan reports it, and goes on with the other folders.
            SWALLOWED.labels("intake_folder_open").inc()
            log().warning("folder not opened", bucket=folder.bucket, error=str(error))
    return folders


def _guarded(work: Callable[[Stop], None], stop: Stop, failed: list[BaseException]) -> None:
    try:
        work(stop)
    except BaseException as error:  # noqa: BLE001  (it is raised again in the role's own thread)
        failed.append(error)
