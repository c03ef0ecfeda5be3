"""Label sets in canonical order, their hash, and names that Prometheus accepts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import orjson

METRIC_NAME = "__name__"
#: Labels that describe a metric as it was sent, and therefore not the results computed from it.
METADATA_LABELS = (METRIC_NAME, "__type__", "__unit__")

#: Bytes of a series id.
SERIES_ID_BYTES = 8

_SEPARATORS = re.compile(r"[^a-zA-Z0-9]+")
_NOT_ATTRIBUTE = re.compile(r"[^a-z0-9_]")
_NOT_LABEL = re.compile(r"[^a-zA-Z0-9_]")
#: Neither byte can occur in UTF-8 text, so two different label sets never hash the same bytes.
_END_OF_NAME, _END_OF_VALUE = b"\xff", b"\xfe"


@dataclass(frozen=True, slots=True)
class LabelSet:
    """Labels sorted by name, without empty values: in Prometheus an empty label is an absent one.

    Only series of LogQL may have empty labels (`valued` leaves them out): a parser found the field, but no value.
    """

    pairs: tuple[tuple[str, str], ...]
    # Label sets are cached between queries, and these derived forms are cached with them.
    _json: bytes | None = field(default=None, compare=False, repr=False)
    _computed: LabelSet | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> LabelSet:
        return cls(tuple(sorted((name, value) for name, value in labels.items() if value)))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def get(self, name: str) -> str:
        """Return the value, or the empty string when the label is absent: both mean the same."""
        for key, value in self.pairs:
            if key == name:
                return value
        return ""

    def valued(self) -> LabelSet:
        """Return the labels that have a value."""
        if all(value for _, value in self.pairs):
            return self
        return LabelSet(tuple(pair for pair in self.pairs if pair[1]))

    def without(self, *names: str) -> LabelSet:
        return LabelSet(tuple(pair for pair in self.pairs if pair[0] not in names))

    def of_computed(self) -> LabelSet:
        """Return the labels of results computed from this series: without `METADATA_LABELS`."""
        made = self._computed
        if made is None:
            made = self.without(*METADATA_LABELS)
            object.__setattr__(self, "_computed", made)
        return made

    def to_json(self) -> bytes:
        """Return a JSON object with sorted names. Raises `TypeError` when a value is not Unicode text."""
        made = self._json
        if made is None:
            made = orjson.dumps(dict(self.pairs))
            object.__setattr__(self, "_json", made)
        return made

    @classmethod
    def from_json(cls, document: bytes) -> LabelSet:
        """Parse the result of `to_json`."""
        return cls(tuple(orjson.loads(document).items()), document)

    def keep(self, *names: str) -> LabelSet:
        return LabelSet(tuple(pair for pair in self.pairs if pair[0] in names))

    def with_label(self, name: str, value: str) -> LabelSet:
        return LabelSet.of({**dict(self.pairs), name: value})

    def tid(self, key: bytes = b"") -> int:
        """Return the id of the series with these labels: see `series_id`."""
        pieces = [name.encode() + _END_OF_NAME + value.encode() + _END_OF_VALUE for name, value in self.pairs]
        return int.from_bytes(series_id(b"".join(pieces), key), "little", signed=True)

    def __str__(self) -> str:
        name = self.get(METRIC_NAME)
        inner = ", ".join(f"{key}={_quote(value)}" for key, value in self.pairs if key != METRIC_NAME)
        return f"{name}{{{inner}}}" if inner or not name else name


def series_id(labels: bytes, key: bytes) -> bytes:
    """Return the 64-bit id of a series: BLAKE2b of its labels, with the secret key of the lake.

    Samples know their series only by this id, so two label sets with the same id would become one series for good.
    Whoever does not know the key cannot search for such label sets, and by chance they need billions of series.
    """
    return hashlib.blake2b(labels, digest_size=SERIES_ID_BYTES, key=key).digest()


def attribute_column(prefix: str, key: str) -> str:
    """Return the column of an attribute: its Loki label in lower case, so that a label's column is known.

    A key without any letter or digit of ASCII keeps its length, since such keys would all have the same column.

    >>> attribute_column("resource", "k8s.pod.Name"), attribute_column("attr", "a..b"), attribute_column("attr", "ключ")
    ('resource_k8s_pod_name', 'attr_a_b', 'attr_____')
    """
    name = _underscored(key).lower()
    return f"{prefix}_{name if name.strip('_') else _NOT_ATTRIBUTE.sub('_', key)}"


def loki_label(key: str) -> str:
    """Return the label name that Loki's OTLP endpoint gives to an attribute key.

    >>> loki_label("http.Method"), loki_label("a..b"), loki_label("9lives"), loki_label("-x-"), loki_label("__line__")
    ('http_Method', 'a_b', 'key_9lives', '_x_', '__line__')
    """
    name = _underscored(key)
    return f"key_{name}" if name[:1].isdigit() else name


def _underscored(key: str) -> str:
    """Replace each run of other characters than letters and digits by an underscore. `__x__` keeps its underscores."""
    if len(key) > 4 and key.startswith("__") and key.endswith("__"):
        return f"__{_SEPARATORS.sub('_', key[2:-2])}__"
    return _SEPARATORS.sub("_", key)


def prometheus_label(key: str) -> str:
    """Return the label name that Prometheus' OTLP translation gives to an attribute key.

    >>> prometheus_label("http.method"), prometheus_label("2xx"), prometheus_label("_id"), prometheus_label("__x__")
    ('http_method', 'key_2xx', 'key_id', '__x__')
    """
    label = _NOT_LABEL.sub("_", key)
    if label[:1].isdigit():
        return f"key_{label}"
    return f"key{label}" if label.startswith("_") and not label.startswith("__") else label


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
