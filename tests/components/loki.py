"""The configuration of a real Loki that runs alone: loopback, its own folder, no limits that refuse our records."""

from __future__ import annotations

from pathlib import Path

_CONFIG = """
auth_enabled: false
analytics: {{reporting_enabled: false}}
server:
  http_listen_address: 127.0.0.1
  http_listen_port: {port}
  grpc_listen_address: 127.0.0.1
  grpc_listen_port: {grpc_port}
  grpc_server_max_recv_msg_size: 104857600
  grpc_server_max_send_msg_size: 104857600
  log_level: error
common:
  instance_addr: 127.0.0.1
  path_prefix: {folder}
  replication_factor: 1
  ring: {{kvstore: {{store: inmemory}}}}
  storage: {{filesystem: {{chunks_directory: {folder}/chunks, rules_directory: {folder}/rules}}}}
schema_config:
  configs:
    - {{from: 2020-01-01, store: tsdb, object_store: filesystem, schema: v13, index: {{prefix: index_, period: 24h}}}}
limits_config:
  ingestion_rate_mb: 1000
  ingestion_burst_size_mb: 2000
  per_stream_rate_limit: 1GB
  per_stream_rate_limit_burst: 2GB
  reject_old_samples: false
  max_query_series: 1000000
  max_query_length: 0
  volume_enabled: true
  # Sharded streams show a label that no sender sent.
  shard_streams: {{enabled: false}}
{limits}
# The records are older than the ingesters are usually asked for.
querier: {{query_ingesters_within: 0}}
query_range: {{cache_results: false{query_range}}}
"""
#: Splitting and sharding change answers: they round the times of a query, and divide averages by other counts.
_WHOLE_LIMITS = "  split_queries_by_interval: 0"
_WHOLE_RANGE = ", parallelise_shardable_queries: false, align_queries_with_step: false"


def loki_config(folder: Path, port: int, grpc_port: int, *, whole_queries: bool) -> str:
    """The text of the file. With `whole_queries`, no query is split or sharded; otherwise both are as by default."""
    limits, query_range = (_WHOLE_LIMITS, _WHOLE_RANGE) if whole_queries else ("", "")
    return _CONFIG.format(folder=folder, port=port, grpc_port=grpc_port, limits=limits, query_range=query_range)
