"""The door to who this function is at AWS."""

from collections.abc import Mapping
from typing import Protocol


class CallerIdentity(Protocol):
    """Signs with the function's own AWS credentials; sends nothing. Both methods raise ``CredentialsError``."""

    def region(self) -> str:
        """The AWS region that the function runs in, such as ``eu-west-1``."""
        ...

    def signed(self, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """All headers of a POST to ``url`` without a body, which AWS STS in this region would take for the function's.

        ``headers`` are among them, and covered by the signature (AWS Signature Version 4); names are lower-case.
        """
        ...
