"""Events as their senders write them."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote, quote_plus


def s3_record(key: str, *, bucket: str = "lake", event: str = "ObjectCreated:Put", **more: Any) -> dict[str, Any]:
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2026-11-15T21:32:00.000Z",
        "eventName": event,
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "raw",
            "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {"key": key, "size": 1024, "eTag": "d41d8cd98f00b204e9800998ecf8427e", **more},
        },
    }


def aws_encoded(key: str) -> str:
    """S3 leaves slashes, moto and MinIO do not."""
    return quote_plus(key, safe="/")


def s3_event(*records: dict[str, Any]) -> str:
    return json.dumps({"Records": list(records)})


def sns(message: str) -> str:
    return json.dumps(
        {
            "Type": "Notification",
            "MessageId": "5e8f",
            "TopicArn": "arn:aws:sns:us-east-1:123456789012:raw",
            "Subject": "Amazon S3 Notification",
            "Message": message,
            "Timestamp": "2026-11-15T21:32:00.000Z",
        }
    )


def eventbridge(key: str, *, bucket: str = "lake", kind: str = "Object Created") -> str:
    return json.dumps(
        {
            "version": "0",
            "id": "17793124-05d4-b198-2fde-7ededc63b103",
            "detail-type": kind,
            "source": "aws.s3",
            "account": "111122223333",
            "time": "2026-11-15T21:32:00Z",
            "region": "us-east-1",
            "resources": [f"arn:aws:s3:::{bucket}"],
            "detail": {
                "version": "0",
                "bucket": {"name": bucket},
                "object": {"key": key, "size": 5, "etag": "b1946ac92492d2347c6235b4d2611184", "version-id": "V1"},
                "reason": "PutObject",
            },
        }
    )


def minio(key: str, *, bucket: str = "lake") -> str:
    record = s3_record(quote_plus(key), bucket=bucket, event="s3:ObjectCreated:Put")
    record["eventSource"] = "minio:s3"
    return json.dumps({"EventName": "s3:ObjectCreated:Put", "Key": f"{bucket}/{key}", "Records": [record]})


def versitygw(key: str, *, bucket: str = "lake") -> str:
    """Keys as they are, and size 0 for a multipart upload."""
    record = s3_record(key, bucket=bucket, event="s3:ObjectCreated:CompleteMultipartUpload")
    record["s3"]["object"]["size"] = 0
    return json.dumps({"Records": [record]})


TEST_EVENT = json.dumps(
    {"Service": "Amazon S3", "Event": "s3:TestEvent", "Time": "2026-11-15T21:32:00.000Z", "Bucket": "lake"}
)


def gcs(key: str, *, bucket: str = "lake", kind: str = "OBJECT_FINALIZE") -> dict[str, str]:
    return {
        "eventType": kind,
        "payloadFormat": "JSON_API_V1",
        "bucketId": bucket,
        "objectId": key,
        "objectGeneration": "1700000000000000",
        "notificationConfig": f"projects/_/buckets/{bucket}/notificationConfigs/1",
    }


def azure(key: str, *, container: str = "lake", kind: str = "Microsoft.Storage.BlobCreated") -> dict[str, Any]:
    return {
        "topic": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/acct",
        "subject": f"/blobServices/default/containers/{container}/blobs/{key}",
        "eventType": kind,
        "eventTime": "2026-11-15T21:32:00.0000000Z",
        "id": "831e1650-001e-001b-66ab-eeb76e069631",
        "data": {
            "api": "PutBlockList",
            "contentLength": 524288,
            "blobType": "BlockBlob",
            "url": f"https://acct.blob.core.windows.net/{container}/{quote(key)}",
            "eTag": "0x8D4BCC2E4835CD0",
        },
        "dataVersion": "",
        "metadataVersion": "1",
    }


def azure_body(*events: dict[str, Any]) -> str:
    document = events[0] if len(events) == 1 else list(events)
    return base64.b64encode(json.dumps(document).encode()).decode()
