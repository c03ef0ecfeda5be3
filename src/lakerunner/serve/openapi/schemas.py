"""JSON schemas of parameters and answers. Clients are generated from them, and tests check answers against them."""

from __future__ import annotations

from lakerunner.index.org_limits import LIMIT_NAMES

Schema = dict[str, object]

STRING: Schema = {"type": "string"}
BYTES: Schema = {"type": "string", "format": "binary"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 10**15}
FLAG: Schema = {"type": "boolean"}
#: Custom formats for PromQL text, whose grammar a JSON schema cannot describe.
PROMQL: Schema = {"type": "string", "format": "promql", "minLength": 1, "examples": ["sum by (job) (rate(up[5m]))"]}
SELECTOR: Schema = {"type": "string", "format": "promql-selector", "minLength": 1, "examples": ['up{job="api"}']}
#: Likewise for LogQL.
LOGQL: Schema = {
    "type": "string",
    "format": "logql",
    "minLength": 1,
    "examples": ['sum by (level) (count_over_time({service_name="cart"}[5m]))'],
}
TIER: Schema = {
    "description": "Coarsest tier that may stand for raw samples, in seconds or as a duration; `off` for none.",
    "anyOf": [{"type": "integer", "minimum": 0, "maximum": 10**9}, {"enum": ["off", "1m", "5m", "1h", "1d"]}],
}
TIME: Schema = {
    "description": "Seconds since the epoch, or an RFC 3339 time.",
    "anyOf": [NUMBER, {"type": "string", "format": "date-time"}],
}
SPAN: Schema = {
    "description": "Seconds, or a duration like 1m30s.",
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^[1-9][0-9]{0,3}(ms|s|m|h|d)$"},
    ],
}
_MOMENT: Schema = {
    "description": "Milliseconds since the epoch, an RFC 3339 time, `now-1h`, or `e-1h` for an hour before the end.",
    "anyOf": [
        {"type": "integer", "minimum": -(10**15), "maximum": 10**15},
        {"type": "string", "format": "date-time"},
        {"type": "string", "pattern": r"^(now|e)(-[1-9][0-9]{0,3}(s|m|h|d))?$"},
    ],
}
_STREAM_SPAN: Schema = {
    "description": "Milliseconds, or a duration like 30s.",
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": 10**14},
        {"type": "string", "pattern": r"^[1-9][0-9]{0,3}(ms|s|m|h|d)$"},
    ],
}

#: Parameters by name. Streams use other units and names; see `STREAM_PARAMETERS`.
PARAMETERS: dict[str, Schema] = {
    "query": PROMQL,
    "match[]": {"type": "array", "items": SELECTOR},
    "time": TIME,
    "start": TIME,
    "end": TIME,
    "step": SPAN,
    "timeout": SPAN,
    "lookback_delta": SPAN,
    "limit": COUNT,
    "days": COUNT,
    "limit_per_metric": COUNT,
    "metric": STRING,
    "nocache": FLAG,
    "partial": FLAG,
    "max_tier": TIER,
    "approximate": FLAG,
    "rewrite": FLAG,
    "explain": FLAG,
    "adjust": FLAG,
    "stats": {"type": "string", "enum": ["all"]},
    "name": {"type": "string", "minLength": 1, "examples": ["job", "U__http_2e_method"]},
    "query_id": {"type": "string", "minLength": 1},
    "signal": {"enum": ["logs", "traces"]},
    "id": {"type": "string", "minLength": 1, "maxLength": 32, "pattern": "^[0-9a-fA-F]+$"},
    "tag": {"type": "string", "minLength": 1, "examples": ["service.name", "span.http.method"]},
    "deletion_id": {"type": "string", "format": "uuid"},
    "namespace": {"type": "string", "minLength": 1, "examples": ["default"]},
    "group": {"type": "string", "minLength": 1, "examples": ["checkout"]},
    "type": {"enum": ["alert", "record"]},
    "rule_name[]": {"type": "array", "items": STRING},
    "rule_group[]": {"type": "array", "items": STRING},
    "file[]": {"type": "array", "items": STRING},
    "exclude_alerts": FLAG,
    "group_limit": COUNT,
    "group_next_token": STRING,
}
DELETE_PARAMETERS: dict[str, Schema] = {
    "signal": {"enum": ["logs", "metrics", "traces"]},
    "match": {"type": "string", "minLength": 1, "examples": ['{service_name="cart"}']},
    "start": TIME,
    "end": TIME,
    "now": FLAG,
}
STREAM_PARAMETERS: dict[str, Schema] = {
    "q": PROMQL,
    "s": _MOMENT,
    "e": _MOMENT,
    "step": _STREAM_SPAN,
    "limit": COUNT,
    "lookback": _STREAM_SPAN,
    "timeout": _STREAM_SPAN,
    "nocache": FLAG,
    "partial": FLAG,
    "max_tier": TIER,
    "approximate": FLAG,
    "rewrite": FLAG,
    "explain": FLAG,
    "summary": FLAG,
    "reverse": {"const": False, "description": "Not supported for metrics."},
    "fields": {"type": "array", "maxItems": 0, "description": "Must be empty for metrics."},
}


LOG_PARAMETERS: dict[str, Schema] = {
    **STREAM_PARAMETERS,
    "q": LOGQL,
    "reverse": {"type": "boolean", "description": "Whether the newest entries come first, which is the default."},
    "fields": {"type": "array", "items": STRING, "description": "Labels to show."},
}
SPAN_PARAMETERS: dict[str, Schema] = {
    **STREAM_PARAMETERS,
    "q": {"type": "string", "format": "traceql", "minLength": 1, "examples": ["{ status = error && duration > 1s }"]},
}
ROW_PARAMETERS: dict[str, Schema] = {
    "where": {
        "type": "string",
        "format": "row-filter",
        "examples": ['service_name = "cart" and severity_number >= 17'],
    },
    "s": _MOMENT,
    "e": _MOMENT,
    "limit": COUNT,
    "oldest_first": FLAG,
    "fields": {"type": "array", "items": STRING},
    "timeout": _STREAM_SPAN,
    "partial": FLAG,
    "explain": FLAG,
}


def record(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object with these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _pair(value: Schema) -> Schema:
    """A pair of time and value.

    It uses `items`, not `prefixItems`, because tools for older drafts of JSON Schema misread positional items.
    """
    return {"type": "array", "items": {"anyOf": [NUMBER, value]}, "minItems": 2, "maxItems": 2}


def constant(value: str) -> Schema:
    return {"const": value}


_METRIC = mapping(STRING)
_BUCKET: Schema = {
    "type": "array",
    "items": {"anyOf": [{"enum": [0, 1, 2, 3]}, STRING]},
    "minItems": 4,
    "maxItems": 4,
}
_HISTOGRAM = record({"count": STRING, "sum": STRING}, {"buckets": array(_BUCKET)})
_STATS: dict[str, Schema] = {"stats": {"type": "object"}}
_SAMPLE: Schema = {
    "anyOf": [
        record({"metric": _METRIC, "value": _pair(STRING)}),
        record({"metric": _METRIC, "histogram": _pair(_HISTOGRAM)}),
    ]
}
_SERIES = record({"metric": _METRIC}, {"values": array(_pair(STRING)), "histograms": array(_pair(_HISTOGRAM))})
VALUES: Schema = {
    "anyOf": [
        record({"resultType": constant("vector"), "result": array(_SAMPLE)}, _STATS),
        record({"resultType": constant("matrix"), "result": array(_SERIES)}, _STATS),
        record({"resultType": {"enum": ["scalar", "string"]}, "result": _pair(STRING)}, _STATS),
    ]
}
MATRIX = record({"resultType": constant("matrix"), "result": array(_SERIES)}, _STATS)
_EXEMPLAR = record({"labels": _METRIC, "value": STRING, "timestamp": NUMBER})
EXEMPLARS = array(record({"seriesLabels": _METRIC, "exemplars": array(_EXEMPLAR)}))
METADATA = mapping(array(record({"type": STRING, "help": STRING, "unit": STRING})))
TREE: Schema = {"type": "object", "required": ["type"], "properties": {"type": STRING}}
_NAMED = array(record({"name": STRING, "value": COUNT}))
_HEAD = {name: {"type": "integer"} for name in ("numSeries", "numLabelPairs", "chunkCount", "minTime", "maxTime")}
TSDB = record(
    {
        "headStats": record(_HEAD),  # type: ignore[arg-type]
        "seriesCountByMetricName": _NAMED,
        "labelValueCountByLabelName": _NAMED,
        "memoryInBytesByLabelName": _NAMED,
        "seriesCountByLabelValuePair": _NAMED,
    }
)
_RUNNING = record(
    {
        **dict.fromkeys(("id", "org", "key", "kind", "query"), STRING),
        "state": {"enum": ["waiting", "running", "stopping"]},
        **dict.fromkeys(("startedAt", "elapsedSeconds", "timeoutSeconds"), NUMBER),
    }
)
RUNNING = _RUNNING
DELETION = mapping({})
DELETIONS = mapping({})
ALL_RUNNING = record({"queries": array(_RUNNING)})
LIMITS = record({"org": STRING, "limits": record(dict.fromkeys(LIMIT_NAMES, NUMBER)), "own": array(STRING)})


def success(data: Schema) -> Schema:
    """A successful answer in the format of Prometheus."""
    return record(
        {"status": constant("success"), "data": data},
        {"warnings": array(STRING), "infos": array(STRING), "explain": {"type": "object"}},
    )


_KINDS = ("bad_data", "execution", "timeout", "canceled", "unavailable", "unauthorized", "not_found", "internal")
#: One event of a stream; its data is a JSON object {"type", "data"}, as described in docs/api.md.
EVENT: Schema = {"type": "object", "required": ["data"], "properties": {"data": STRING, "id": STRING}}
PROMETHEUS_ERROR = record({"status": constant("error"), "errorType": {"enum": list(_KINDS)}, "error": STRING})
_MAYBE: Schema = {"type": ["string", "null"]}
LAKE_ERROR = record({"error": record({"code": STRING, "message": STRING, "hint": _MAYBE, "where": _MAYBE})})

_ALERT = record(
    {
        "labels": mapping(STRING),
        "annotations": mapping(STRING),
        "state": {"enum": ["pending", "firing"]},
        "activeAt": STRING,
        "value": STRING,
    },
    {"keepFiringSince": STRING},
)
ALERTS = record({"alerts": array(_ALERT)})
_RULE = record(
    {
        "name": STRING,
        "query": STRING,
        "labels": mapping(STRING),
        "health": {"enum": ["ok", "err", "unknown"]},
        "evaluationTime": NUMBER,
        "lastEvaluation": STRING,
        "type": {"enum": ["alerting", "recording"]},
    },
    {
        "lastError": STRING,
        "state": {"enum": ["firing", "pending", "inactive", "unknown"]},
        "duration": NUMBER,
        "keepFiringFor": NUMBER,
        "annotations": mapping(STRING),
        "alerts": array(_ALERT),
    },
)
_GROUP = record(
    {
        "name": STRING,
        "file": STRING,
        "rules": array(_RULE),
        "interval": NUMBER,
        "limit": COUNT,
        "evaluationTime": NUMBER,
        "lastEvaluation": STRING,
    }
)
RULES = record({"groups": array(_GROUP)}, {"groupNextToken": STRING})
