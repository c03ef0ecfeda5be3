"""A missing folder is an unmounted disk, not an empty bucket."""

from pathlib import Path

import pytest

from lakerunner.model.errors import Missing, Unavailable
from lakerunner.runtime.settings import DataSettings, Settings, StoreSettings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store


def test_a_named_folder_is_not_made(tmp_path: Path) -> None:
    named = Settings(store=StoreSettings(url=(tmp_path / "disk").as_uri(), max_attempts=1))
    with pytest.raises(Unavailable, match="mount its disk"):
        open_store(StoreConfig.of(named))
    (tmp_path / "disk").mkdir()
    open_store(StoreConfig.of(named)).put("a", b"x")


def test_the_embedded_default_is(tmp_path: Path) -> None:
    open_store(StoreConfig.of(Settings(data=DataSettings(dir=tmp_path / "new")))).put("a", b"x")
    assert (tmp_path / "new" / "bucket" / "a").read_bytes() == b"x"


def test_unmounted_while_open_nothing_is_missing(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    store = open_store(StoreConfig(url=(tmp_path / "disk").as_uri(), max_attempts=1))
    store.put("a", b"x")
    with pytest.raises(Missing):
        store.get("b")
    (tmp_path / "disk").rename(tmp_path / "away")
    (tmp_path / "disk").mkdir()
    with pytest.raises(Unavailable, match="mount it again"):
        store.get("a")
