"""The door to the apps' keys."""

from typing import Protocol


class Secrets(Protocol):
    """Reads secrets by name, from a cache where it may."""

    def get(self, name: str, *, fresh: bool = False) -> str:
        """The secret's text; ``fresh`` passes by the cache. Raises ``CredentialsError``, without the text."""
        ...
