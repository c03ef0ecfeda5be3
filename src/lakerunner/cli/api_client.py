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
#: The key of the summary in the metadata of the last batch of rows.
_SUMMARY = b"lakerunner.summary"
#: How often a broken stream is resumed before its error is reported.
_RESUMES = 3
_ERRORS: dict[int, type[LakeError]] = {400: BadInput, 401: Denied, 404: Missing, 422: LimitHit}


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
        import pyarrow as pa
        import pyarrow.ipc

        try:
            with self._open(f"/api/v1/rows/{signal}", orjson.dumps(body)) as answer:
                reader = pa.ipc.open_stream(answer)
                while True:
                    batch, metadata = reader.read_next_batch_with_custom_metadata()
                    summary = None if metadata is None else orjson.loads(metadata[_SUMMARY])
                    yield batch, summary
        except StopIteration:
            return
        except (OSError, http.client.HTTPException, pa.ArrowException) as error:
            raise Unavailable(f"cannot read the answer of {self.url}: {error}", hint="ask again") from None

    def _frames(self, body: Mapping[str, object], last_id: str) -> Iterator[tuple[str, Any, str]]:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        frame_id = ""
        with self._open("/api/v1/metrics/query", orjson.dumps(body), headers) as answer:
            for line in answer:
                if line.startswith(b"id: "):
                    frame_id = line[4:].strip().decode()
                elif line.startswith(b"data: "):
                    document = orjson.loads(line[6:])
                    yield document["type"], document["data"], frame_id
                    frame_id = ""

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


def _error_from(answer: urllib.error.HTTPError) -> LakeError:
    """Convert an error answer, in either API's form, to a LakeError."""
    kind = _ERRORS.get(answer.code, Unavailable)
    try:
        document = orjson.loads(answer.read())
    except orjson.JSONDecodeError:
        return kind(f"cannot query the API: it answered with status {answer.code}")
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, dict):
        return kind(str(error.get("message")), hint=error.get("hint"), where=error.get("where"))
    return kind(str(error))
