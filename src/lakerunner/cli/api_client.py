"""A client of the query API for the command line: plain HTTP, with errors as LakeErrors."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import orjson

from lakerunner.model.errors import BadInput, Denied, LakeError, LimitHit, Missing, Unavailable

if TYPE_CHECKING:
    import pyarrow as pa

_TIMEOUT_S = 600.0
#: Keys in the metadata of batches: the summary, in the last one; and the position from which to resume after a batch.
_SUMMARY, _CURSOR = b"lakerunner.summary", b"lakerunner.cursor"
_TEXT, _MAX_ERROR = "text/plain", 2_000
_ARROW = "application/vnd.apache.arrow.stream"
_ACCEPT_ARROW = {"Accept": _ARROW}
#: How often a broken stream is resumed before its error is reported.
_RESUMES = 3
#: How servers say that they have no such route, or not for POST. An API of ours says more, or in JSON.
_NOT_OURS, _NO_ROUTE = (404, 405), ("", "Not Found", "Method Not Allowed", "404 page not found")
_ERRORS: dict[int, type[LakeError]] = {400: BadInput, 401: Denied, 404: Missing, 422: LimitHit}


@dataclass(frozen=True, slots=True)
class Entries:
    """Batches of log entries, each with the summary that came with it: None, but for the last."""

    batches: Iterator[tuple[pa.RecordBatch, Any]]


@dataclass(frozen=True, slots=True)
class Frames:
    """Type and data of each frame of a stream of values."""

    frames: Iterator[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class ApiClient:
    url: str
    key: str = ""
    org: str = ""

    def get(self, path: str, params: Mapping[str, str | Sequence[str]]) -> Any:
        """Return the answer of an endpoint of Prometheus' API, with its `data` and `warnings`."""
        with self._open(f"{path}?{urlencode(params, doseq=True)}") as answer:
            return orjson.loads(answer.read())

    def stream(self, body: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
        """Yield type and data of each frame of a streamed range query. A broken stream is resumed where it stopped."""
        last_id, failures = "", 0
        while True:
            try:
                for kind, data, frame_id in self._frames(body, last_id):
                    last_id = frame_id or last_id
                    yield kind, data
                    if kind == "done":
                        return
                reason = "the connection ended before the answer"
            except (OSError, http.client.HTTPException) as error:
                reason = str(error)
            failures += 1
            if failures > _RESUMES:
                raise Unavailable(f"cannot read the answer of {self.url}: {reason}", hint="run the query again")

    def rows(self, signal: str, body: Mapping[str, object]) -> Iterator[tuple[pa.RecordBatch, Any]]:
        """Batches of rows, each with the summary that came with it: None, but for the last."""
        with self._open(f"/api/v1/rows/{signal}", orjson.dumps(body)) as answer:
            for batch, metadata in self._batches(answer):
                yield batch, orjson.loads(metadata[_SUMMARY]) if _SUMMARY in metadata else None

    def logs(self, body: Mapping[str, object]) -> Entries | Frames:
        """The answer to a LogQL query: the entries of a log query, or the frames of a metric query."""
        answer = self._open("/api/v1/logs/query", orjson.dumps(body), _ACCEPT_ARROW)
        if answer.headers.get_content_type() == _ARROW:
            return Entries(self._entries(body, answer))
        return Frames((kind, data) for kind, data, _ in _frames_in(answer))

    def _entries(self, body: Mapping[str, object], answer: Any) -> Iterator[tuple[pa.RecordBatch, Any]]:
        """Batches of entries. An answer that breaks off, or takes longer than a query may, goes on where it stopped."""
        failures, cursor = 0, b""
        while True:
            progressed, reason = False, None
            try:
                with answer:
                    for batch, metadata in self._batches(answer):
                        summary = orjson.loads(metadata[_SUMMARY]) if _SUMMARY in metadata else None
                        if cursor and summary is not None and _is_timeout(summary) and progressed:
                            break
                        cursor = metadata.get(_CURSOR, cursor)
                        progressed = progressed or bool(batch.num_rows)
                        yield batch, summary
                        if summary is not None:
                            return
            except Unavailable as error:
                reason = error
            failures = 0 if progressed else failures + 1
            if not cursor or failures > _RESUMES:
                raise reason or Unavailable(f"cannot read the answer of {self.url}: it ended early", hint="ask again")
            headers = {**_ACCEPT_ARROW, "Last-Event-ID": cursor.decode()}
            answer = self._open("/api/v1/logs/query", orjson.dumps(body), headers)

    def tail(self, body: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
        """Type and data of each frame of a live tail. One that breaks off has no frame of the type `done`."""
        with self._open("/api/v1/logs/tail", orjson.dumps(body)) as answer:
            try:
                for kind, data, _ in _frames_in(answer):
                    yield kind, data
            except (OSError, http.client.HTTPException, orjson.JSONDecodeError):
                return

    def _batches(self, answer: Any) -> Iterator[tuple[pa.RecordBatch, Mapping[bytes, bytes]]]:
        """The batches of an Arrow stream, each with its metadata."""
        import pyarrow as pa
        import pyarrow.ipc

        try:
            reader = pa.ipc.open_stream(answer)
            while True:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
                yield batch, {} if metadata is None else dict(metadata.items())
        except StopIteration:
            return
        except (OSError, http.client.HTTPException, pa.ArrowException) as error:
            raise Unavailable(f"cannot read the answer of {self.url}: {error}", hint="ask again") from None

    def _frames(self, body: Mapping[str, object], last_id: str) -> Iterator[tuple[str, Any, str]]:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        with self._open("/api/v1/metrics/query", orjson.dumps(body), headers) as answer:
            yield from _frames_in(answer)

    def _open(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise BadInput(f"cannot query {self.url!r}: it is not an HTTP address", hint="use --url http://host:port")
        request = urllib.request.Request(self.url.rstrip("/") + path, data=body, headers=dict(headers or {}))
        if body is not None:
            request.add_header("Content-Type", "application/json")
        if self.key:
            request.add_header("Authorization", f"Bearer {self.key}")
        if self.org:
            request.add_header("X-Scope-OrgID", self.org)
        try:
            return urllib.request.urlopen(request, timeout=_TIMEOUT_S)
        except urllib.error.HTTPError as answer:
            raise _error_from(answer) from None
        except urllib.error.URLError as reason:
            raise Unavailable(
                f"cannot reach the query API at {self.url}: {reason.reason}",
                hint="start it with `lakerunner serve`, or set its address with --url",
            ) from None


def _frames_in(answer: Any) -> Iterator[tuple[str, Any, str]]:
    """Type, data and id of each frame of a stream of events."""
    frame_id = ""
    for line in answer:
        if line.startswith(b"id: "):
            frame_id = line[4:].strip().decode()
        elif line.startswith(b"data: "):
            document = orjson.loads(line[6:])
            yield document["type"], document["data"], frame_id
            frame_id = ""


def _is_timeout(summary: Any) -> bool:
    return isinstance(summary.get("error"), dict) and summary["error"].get("code") == "timeout"


def _error_from(answer: urllib.error.HTTPError) -> LakeError:
    """Convert an error answer, in either API's form, to a LakeError."""
    kind = _ERRORS.get(answer.code, Unavailable)
    body = answer.read()
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        # Loki's API answers errors as text.
        text = body.decode(errors="replace").strip()[:_MAX_ERROR] if answer.headers.get_content_type() == _TEXT else ""
        if answer.code in _NOT_OURS and text in _NO_ROUTE:
            address = str(answer.url).partition("?")[0]
            return Missing(
                f"cannot query {address}: nothing of Lakerunner's query API is there",
                hint="give the address of the role query-api, by default --url http://127.0.0.1:7100",
            )
        return kind(text or f"cannot query the API: it answered with status {answer.code}")
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, dict):
        return kind(str(error.get("message")), hint=error.get("hint"), where=error.get("where"))
    return kind(str(error))
