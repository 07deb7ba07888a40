"""Who this function is at AWS: requests signed with the credentials of its role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError

from pushlease.errors import CredentialsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import boto3


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleIdentity:
    """``CallerIdentity`` by botocore, wherever it finds credentials: Lambda's environment, containers, instances."""

    session: boto3.Session

    def region(self) -> str:
        """See ``CallerIdentity``."""
        region = self.session.region_name
        if not region:
            raise CredentialsError("AWS: no region is configured")
        return region

    def signed(self, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """See ``CallerIdentity``."""
        try:
            credentials = self.session.get_credentials()
            current = credentials.get_frozen_credentials() if credentials else None
        except BotoCoreError as error:  # those of an instance or a container are fetched, and may be so next time
            raise CredentialsError(f"AWS: no credentials ({type(error).__name__})", passing=True) from None
        if current is None:
            raise CredentialsError("AWS: no credentials are configured")
        request = AWSRequest(method="POST", url=url, headers={"host": urlsplit(url).netloc, **headers})
        SigV4Auth(current, "sts", self.region()).add_auth(request)
        return {name.lower(): value for name, value in request.headers.items()}
