"""Open a store from its address."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from obstore.store import AzureStore, GCSStore, S3Store

from lakerunner.model.errors import BadInput
from lakerunner.store.bucket import Bucket
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import remote_errors
from lakerunner.store.folder import FolderBucket
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.remote import RemoteBucket

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

#: ObjectStore retries by error class, with metrics and a circuit breaker. obstore's own ten silent retries would
#: multiply with ours and hide a failing store from both.
_NO_RETRY: RetryConfig = {"max_retries": 0}
_CONNECT_S = 5.0


def open_store(config: StoreConfig) -> ObjectStore:
    """Open the store at `config.url`. May create a folder; sends no request to a remote bucket (see `ping`)."""
    return ObjectStore(_bucket(config), config)


def _bucket(config: StoreConfig) -> Bucket:
    address = urlsplit(config.url)
    if address.scheme == "file":
        return FolderBucket(_folder(config.url), create=config.create)
    if address.scheme not in ("s3", "gs", "az") or not address.netloc:
        raise BadInput(
            f"cannot open {config.url!r}: it is not the address of a bucket",
            hint="write file:///folder, s3://bucket, gs://bucket or az://container",
            where="store.url",
        )
    if config.endpoint.startswith("http://") and not config.allow_http:
        raise BadInput(
            f"cannot open {config.url}: the endpoint {config.endpoint} does not use TLS",
            hint="use https, or set store.allow_http",
            where="store.endpoint",
        )
    prefix = address.path.strip("/") or None

    def build(timeout_s: float) -> Any:
        with remote_errors(f"open {config.url}"):
            return _client(config, address.scheme, address.netloc, prefix, timeout_s)

    return RemoteBucket(build, config.timeout_s, azure=address.scheme == "az")


def _client(config: StoreConfig, scheme: str, name: str, prefix: str | None, timeout_s: float) -> Any:
    http: ClientConfig = {
        "allow_http": config.allow_http,
        "timeout": timedelta(seconds=timeout_s),
        "connect_timeout": timedelta(seconds=min(_CONNECT_S, timeout_s)),
    }
    common: dict[str, Any] = {"prefix": prefix, "client_options": http, "retry_config": _NO_RETRY}
    options: dict[str, Any] = dict(config.credential_values())
    if scheme == "s3":
        if config.region:
            options["region"] = config.region
        if config.endpoint:
            options["endpoint"] = config.endpoint
        return S3Store(name, **common, **options)
    if scheme == "gs":
        if config.endpoint:
            options["base_url"] = config.endpoint
        return GCSStore(name, **common, **options)
    if config.endpoint:
        options["endpoint"] = config.endpoint
    return AzureStore(name, **common, **options)


def _folder(url: str) -> Path:
    address = urlsplit(url)
    path = unquote(url.removeprefix("file://").removeprefix("localhost"))
    if address.netloc not in ("", "localhost") or not path.startswith("/"):
        raise BadInput(
            f"cannot open {url!r}: it names a machine or a relative path",
            hint="write file:///folder with three slashes",
            where="store.url",
        )
    return Path(path)
