"""The clients of boto3, made once per execution environment; endpoint, region and credentials come from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
from aws_lambda_powertools.utilities.parameters import SecretsProvider
from botocore.config import Config

from pushlease.aws.identity import RoleIdentity

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

# A call that hangs must not eat the lease: at the worst three tries of 5 s, and the caller's own repeat.
_CONFIG = Config(connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
_ONCE = Config(connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 1})


def dynamodb() -> DynamoDBClient:
    """DynamoDB."""
    return boto3.client("dynamodb", config=_CONFIG)


def sqs() -> SQSClient:
    """SQS."""
    return boto3.client("sqs", config=_CONFIG)


def sqs_once() -> SQSClient:
    """SQS without the SDK's own retries: what is sent through it is sent at most once."""
    return boto3.client("sqs", config=_ONCE)


def secrets() -> SecretsProvider:
    """Secrets Manager behind Powertools' cache."""
    return SecretsProvider(boto_config=_CONFIG)


def s3() -> S3Client:
    """S3."""
    return boto3.client("s3", config=_CONFIG)


def identity() -> RoleIdentity:
    """The function's role, to sign with."""
    return RoleIdentity(session=boto3.Session())
