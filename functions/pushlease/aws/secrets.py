"""Provider credentials in Secrets Manager, read through Powertools' cache."""

from dataclasses import dataclass

from aws_lambda_powertools.utilities.parameters import SecretsProvider
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

from pushlease.errors import CredentialsError

# A rotated key is refused by its provider, and then read afresh: the cache need not be short.
MAX_AGE_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsManagerSecrets:
    """Secrets by name. ``prefix`` is what the functions' roles may read; other names are refused before any call."""

    provider: SecretsProvider
    prefix: str

    def get(self, name: str, *, fresh: bool = False) -> str:
        """The secret's text; raises ``CredentialsError``, naming the secret and never its value."""
        if not name.startswith(self.prefix):
            raise CredentialsError(f"secret {name}: must start with {self.prefix}")
        try:
            value = self.provider.get(name, max_age=MAX_AGE_S, force_fetch=fresh)
        except GetParameterError as error:
            raise CredentialsError(
                f"secret {name}: cannot be read ({type(error.__cause__ or error).__name__})"
            ) from None
        if not isinstance(value, str):
            raise CredentialsError(f"secret {name}: must be text")
        return value
