"""The events of every source, in every wrapping, become object names; anything else becomes a reason."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.intake.event_azure import parse_azure
from lakerunner.intake.event_gcs import parse_gcs
from lakerunner.intake.event_s3 import parse_s3
from lakerunner.intake.events import ObjectEvent, ParsedEvent
from tests.intake import shapes

OTEL = "otel-raw/year=2026/month=11/day=15/hour=21/minute=32/logs_313124979.binpb.gz"

#: Whatever S3 takes as a key: any Unicode text of at most 1,024 bytes; NUL is the one character that the index lacks.
KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=200)


def one(parsed: ParsedEvent) -> ObjectEvent:
    assert not parsed.unreadable
    (event,) = parsed.objects
    return event


def reason(parsed: ParsedEvent) -> str:
    assert not parsed.objects
    (problem,) = parsed.unreadable
    return problem.reason


@pytest.mark.parametrize(
    "body",
    [
        shapes.s3_event(shapes.s3_record(shapes.aws_encoded(OTEL))),
        shapes.s3_event(shapes.s3_record(quote_plus(OTEL))),
        shapes.sns(shapes.s3_event(shapes.s3_record(shapes.aws_encoded(OTEL)))),
        shapes.eventbridge(OTEL),
        shapes.sns(shapes.eventbridge(OTEL)),
        shapes.minio(OTEL),
    ],
    ids=["aws", "moto", "sns", "eventbridge", "eventbridge in sns", "minio"],
)
def test_s3_in_its_wrappings(body: str) -> None:
    event = one(parse_s3(body))
    assert (event.bucket, event.key) == ("s3://lake", OTEL)


@pytest.mark.parametrize("body", [shapes.versitygw(OTEL), shapes.minio(OTEL)], ids=["versitygw", "minio"])
def test_webhook_senders(body: str) -> None:
    assert OTEL in one(parse_s3(body, always_encoded=False)).candidates


def test_an_unencoded_key_is_seen_to_be_one() -> None:
    assert one(parse_s3(shapes.versitygw(OTEL), always_encoded=False)).candidates == (OTEL,)


@given(KEYS)
def test_any_key_survives_s3(key: str) -> None:
    for encode in (shapes.aws_encoded, quote_plus):
        body = shapes.s3_event(shapes.s3_record(encode(key)))
        assert one(parse_s3(body)).candidates == (key,)
        assert one(parse_s3(shapes.sns(body))).key == key


@given(KEYS)
def test_any_key_survives_a_webhook_encoded_or_not(key: str) -> None:
    assert key in one(parse_s3(shapes.versitygw(key), always_encoded=False)).candidates
    assert key in one(parse_s3(shapes.minio(key), always_encoded=False)).candidates


@given(KEYS)
def test_any_key_survives_the_others(key: str) -> None:
    assert one(parse_s3(shapes.eventbridge(key))).key == key
    assert one(parse_gcs(shapes.gcs(key))).candidates == (key,)
    assert one(parse_azure(shapes.azure_body(shapes.azure(key)))).candidates == (key,)


def test_many_records_and_a_bad_one_among_them() -> None:
    parsed = parse_s3(shapes.s3_event(shapes.s3_record("a"), {"eventName": "ObjectCreated:Put"}, shapes.s3_record("b")))
    assert [event.key for event in parsed.objects] == ["a", "b"]
    assert [problem.reason for problem in parsed.unreadable] == ["no text at bucket.name"]


def test_versions_are_told() -> None:
    assert one(parse_s3(shapes.s3_event(shapes.s3_record("a", versionId="v7")))).version == "v7"
    assert one(parse_s3(shapes.eventbridge("a"))).version == "V1"
    assert one(parse_gcs(shapes.gcs("a"))).version == "1700000000000000"


@pytest.mark.parametrize(
    "parsed",
    [
        parse_s3(shapes.TEST_EVENT),
        parse_s3(shapes.sns(shapes.TEST_EVENT)),
        parse_s3(shapes.s3_event(shapes.s3_record("a", event="ObjectRemoved:Delete"))),
        parse_s3(shapes.eventbridge("a", kind="Object Deleted")),
        parse_gcs(shapes.gcs("a", kind="OBJECT_DELETE")),
        parse_azure(shapes.azure_body(shapes.azure("a", kind="Microsoft.Storage.BlobDeleted"))),
    ],
)
def test_what_is_no_creation_is_ignored(parsed: ParsedEvent) -> None:
    assert parsed == ParsedEvent(ignored=1)


def test_azure_plain_many_and_cloud_events() -> None:
    cloud = shapes.azure("b")
    cloud["type"] = cloud.pop("eventType")
    parsed = parse_azure(json.dumps([shapes.azure("a/x.json"), cloud]))
    assert [(event.bucket, event.key) for event in parsed.objects] == [("az://lake", "a/x.json"), ("az://lake", "b")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b"{}", "neither an S3 event"),
        (b'{"Message": "{}", "TopicArn": "t"}', "neither an S3 event"),
        (b'{"Message": 7, "TopicArn": "t"}', "no text at Message"),
        (b'{"Message": "x", "TopicArn": "t", "Type": "SubscriptionConfirmation"}', "SubscribeURL"),
        (b'{"Records": [null]}', "no text at eventName"),
        (b'{"Records": ["x"]}', "no text at eventName"),
        (shapes.s3_event(shapes.s3_record("")).encode(), "no text at object.key"),
        (shapes.s3_event(shapes.s3_record("%FF")).encode(), "not UTF-8"),
        (shapes.s3_event(shapes.s3_record("a%00b")).encode(), "NUL"),
        (shapes.s3_event(shapes.s3_record("a" * 1025)).encode(), "1025 bytes"),
        (shapes.s3_event(shapes.s3_record("a", bucket="x/y")).encode(), "slash"),
        (shapes.eventbridge("").encode(), "no text at object.key"),
    ],
)
def test_malformed_s3_has_a_reason(body: bytes, expected: str) -> None:
    assert expected in reason(parse_s3(body))


@pytest.mark.parametrize("missing", ["eventType", "bucketId", "objectId"])
def test_malformed_gcs_has_a_reason(missing: str) -> None:
    attributes = shapes.gcs("a")
    del attributes[missing]
    assert reason(parse_gcs(attributes)) == f"no text at {missing}"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("not base64!", "neither JSON nor base64"),
        (base64.b64encode(b"{").decode(), "not JSON"),
        (shapes.azure_body({**shapes.azure("a"), "subject": "/elsewhere"}), "does not name a blob"),
        (shapes.azure_body({**shapes.azure("a"), "subject": "/blobServices/default/containers/c/blobs/"}), "0 bytes"),
        (json.dumps([7]), "no text at type"),
    ],
)
def test_malformed_azure_has_a_reason(body: str, expected: str) -> None:
    assert expected in reason(parse_azure(body))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["Records", "s3", "object", "key", "bucket", "name", "eventName", "detail", "detail-type", "Message",
                 "TopicArn", "Event", "type", "eventType", "subject", "data", "url"]
            ),
            inner | st.sampled_from(["ObjectCreated:Put", "Object Created", "Microsoft.Storage.BlobCreated"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_no_document_breaks_a_parser(document: Any) -> None:
    body = json.dumps(document)
    for parsed in (parse_s3(body), parse_s3(body, always_encoded=False), parse_azure(body)):
        assert parsed.objects or parsed.unreadable or parsed.ignored


@given(st.binary(max_size=60))
def test_no_bytes_break_a_parser(body: bytes) -> None:
    parse_s3(body)
    parse_azure(body)


def test_the_kept_body_is_short_and_fits_the_index() -> None:
    (problem,) = parse_s3(b"\0" * 9_000).unreadable
    assert len(problem.body) == 4_096
    assert "\0" not in problem.body
