"""Query workers, their memory and caches, and the cost limits of a query."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lakerunner.runtime.settings.section import Count, Port, Seconds, Section


class QuerySettings(Section):
    """Query workers, their memory and caches, and the cost limits of a query."""

    workers: str = Field(
        "",
        description="Query workers, as host:port,host:port, or dns://name:port for all addresses of a name. Empty "
        "means the worker that runs on this data.dir, or else the API process itself.",
    )
    worker_host: str = Field("127.0.0.1", description="Address that a query worker listens on.")
    worker_port: Port = Field(0, description="Arrow Flight port of a query worker; 0 lets the system choose.")
    worker_token: str = Field(
        "",
        description="Secret shared by the API and its workers; empty means one stored in data.dir, for one machine.",
        json_schema_extra={"secret": True},
    )
    worker_tls_cert: str = Field(
        "",
        description="PEM file of this process's certificate. The API and its workers present it to each other; empty "
        "means no certificate.",
    )
    worker_tls_key: str = Field("", description="PEM file of the private key for query.worker_tls_cert.")
    worker_tls_ca: str = Field(
        "",
        description="PEM file of the trusted certificate authority (CA). A worker with this setting refuses clients "
        "without a certificate signed by that CA.",
    )
    worker_tls_name: str = Field(
        "", description="Host name in the workers' certificates, if it differs from the address used to reach them."
    )
    worker_memory_bytes: Count = Field(
        4_294_967_296,
        description="Memory, without mapped files, above which a worker empties its caches and, if that does not "
        "help, finishes its queries and restarts.",
    )
    worker_memory_patience_s: Seconds = Field(
        10.0, description="How long memory must stay above query.worker_memory_bytes before the worker restarts."
    )
    worker_max_memory_bytes: Count = Field(
        8_589_934_592, description="Memory above which a worker stops the query that uses the most."
    )
    worker_drain_s: Seconds = Field(
        10.0, description="How long a stopping or restarting worker may take to finish its queries."
    )
    worker_patience_s: Seconds = Field(
        15.0, description="How long queries wait for a restarting worker when no other worker is available."
    )
    cache_dir: str = Field("", description="Folder for cached segments; empty means data.dir.")
    cache_bytes: Count = Field(10_737_418_240, description="Maximum size of cached segments per process.")
    table_cache_bytes: Count = Field(536_870_912, description="Memory for decoded series tables.")
    decoded_cache_bytes: Annotated[int, Field(ge=0)] = Field(
        1_073_741_824, description="Memory for decoded samples and columns of rows that are read repeatedly; 0: none."
    )
    filter_cache_bytes: Annotated[int, Field(ge=0)] = Field(
        67_108_864,
        description="Memory of an API for filters of segments of logs and traces: no worker is "
        "asked about segments that they exclude; 0: none.",
    )
    row_cache_bytes: Annotated[int, Field(ge=0)] = Field(
        33_554_432,
        description="Memory of an API for log records and spans that limited queries found: no worker is asked for "
        "them again while the segments are the same; 0: none.",
    )
    fetches: Annotated[int, Field(ge=1, le=256)] = Field(
        16, description="Segments that a worker fetches and reads concurrently."
    )
    worker_scans: Count = Field(8, description="Requests that a worker answers concurrently; others wait.")
    max_scan_bytes: Count = Field(2_147_483_648, description="Bytes of samples that one query may hold in a worker.")
    attempts: Count = Field(3, description="Workers to try for a segment before it counts as failed.")
    timeout_s: Seconds = Field(120.0, description="How long a query may take.")
    index_patience_s: Seconds = Field(
        300.0, description="How long queries use cached lists of segments while the index does not answer."
    )
