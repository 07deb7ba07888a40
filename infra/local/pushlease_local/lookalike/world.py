"""What the look-alikes believe: registered keys, projects and push_tokens, live bearers, adjustable limits."""

from dataclasses import dataclass, field

# Apple was seen to advertise 500 to 1500; Google closes connections above 100.
MAX_STREAMS = {"apns-production": 1000, "apns-sandbox": 1000, "fcm": 100, "oauth": 100, "sts": 100, "iam": 100}
BEARER_CHANGES_ALLOWED = 1  # Apple: more than one new bearer within 20 minutes on a connection is too many


@dataclass(frozen=True, slots=True, kw_only=True)
class ApnsKey:
    """A provider key as Apple knows it. `topics` are bundle IDs, without the suffix of a push type."""

    team_id: str
    key_id: str
    public_key_pem: str
    topics: frozenset[str]
    environments: frozenset[str] = frozenset({"production", "sandbox"})


@dataclass(slots=True, kw_only=True)
class World:
    """Mutable on purpose: the control API edits it while the servers run.

    A push_token that is in `push_tokens` is good only for the (environment, topic) pairs listed there; one that was
    never registered is good everywhere, so most tests need to register none.
    """

    token_uri: str = ""  # known once the port is open
    apns_keys: dict[tuple[str, str], ApnsKey] = field(default_factory=dict)
    push_tokens: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    projects: set[str] = field(default_factory=set)
    service_accounts: dict[str, str] = field(default_factory=dict)  # client_email → public key, PEM
    access_bearers: dict[str, int] = field(default_factory=dict)  # bearer → expires_ms
    federated_bearers: dict[str, int] = field(default_factory=dict)  # likewise, of the STS
    aws_keys: dict[str, str] = field(default_factory=dict)  # access key id → secret access key
    aws_sessions: set[str] = field(default_factory=set)
    workload_providers: set[str] = field(default_factory=set)  # audiences
    impersonated: set[str] = field(default_factory=set)  # service accounts that a federated identity may be
    apns_bearers_seen: set[str] = field(default_factory=set)
    apns_bearers_revoked: set[str] = field(default_factory=set)
    bearer_changes_allowed: int = BEARER_CHANGES_ALLOWED
    access_lifetime_s: int = 3600  # Google grants access for an hour
    max_streams: dict[str, int] = field(default_factory=MAX_STREAMS.copy)
