"""Keys, roles and bearers end to end: what the pusher shows the look-alike providers, and when it gets another."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import boto3
import pytest

from pushlease.aws.identity import RoleIdentity
from pushlease.codes import Code
from pushlease.push.device import ApnsCredentials, ApnsTopicKey, App, AppId, Environment, FcmCredentials
from pushlease.push.outcome import Accepted, Scope
from pushlease.push.ports import Push
from pushlease_local.lookalike import Service, Step
from pushlease_local.lookalike.credentials import new_apns_credentials, new_service_account
from pushlease_local.lookalike.memory import Seen
from staged import INSTALL, Stage, refused

MINUTE_MS = 60_000
PHONE = "ab" * 32
SERVER_ERROR = Step(do="answer", status=500, reason="InternalServerError")


def seen(stage: Stage, *services: Service) -> list[Seen]:
    return [request for request in stage.control(lambda control: control.requests()) if request.service in services]


def endings(stage: Stage, service: Service) -> list[str]:
    return [request.ending for request in seen(stage, service)]


@pytest.fixture
def keyless(stage: Stage) -> Stage:
    """The app's FCM secret is the configuration of an external account, which is no secret."""
    stage.secrets.written["fcm"] = json.dumps(stage.lookalike.federation.json)
    return stage


# --- Workload Identity Federation -------------------------------------------------------------------------------------


def test_a_push_goes_through_with_the_functions_role_and_no_key_of_googles(keyless: Stage) -> None:
    pushes = [keyless.fcm(f"install:{number}") for number in range(30)]
    assert {type(verdict) for verdict in keyless.push(*pushes)} == {Accepted}
    assert isinstance(keyless.push(keyless.fcm())[0], Accepted)
    assert endings(keyless, Service.STS) == ["200"]
    assert endings(keyless, Service.IAM) == ["200"]
    assert endings(keyless, Service.OAUTH) == []
    assert endings(keyless, Service.FCM) == ["200"] * 31


def test_an_expired_bearer_of_a_role_is_exchanged_anew_within_the_call(keyless: Stage) -> None:
    keyless.push(keyless.fcm())
    keyless.control(lambda control: control.expire_bearers("fcm"))
    assert isinstance(keyless.push(keyless.fcm())[0], Accepted)
    assert endings(keyless, Service.IAM) == ["200", "200"]


@pytest.mark.parametrize(
    ("endpoint", "step", "reason", "alarm"),
    [
        ("sts", Step(do="answer", status=400, reason="invalid_target"), "exchange refused with HTTP 400", True),
        ("sts", Step(do="answer", status=503, reason="server_error"), "exchange refused with HTTP 503", False),
        ("sts", Step(do="answer", status=200, body={}), "exchange answered without an access_token", True),
        ("iam", Step(do="answer", status=403, reason="PERMISSION_DENIED"), "impersonation refused with HTTP 403", True),
        ("iam", Step(do="answer", status=429), "impersonation refused with HTTP 429", False),
        ("iam", Step(do="answer", status=200, body="<html>"), "impersonation answered without an accessToken", True),
    ],
)  # fmt: skip
def test_a_step_that_fails_is_named_and_apple_goes_on(
    keyless: Stage, endpoint: str, step: Step, reason: str, alarm: bool
) -> None:
    keyless.script(endpoint, step)
    apple, *google = keyless.push(keyless.apns(), keyless.fcm(), keyless.fcm("install:2"))
    assert isinstance(apple, Accepted)
    for verdict in map(refused, google):
        assert reason in verdict.reason
        assert (verdict.code, verdict.alarm) == (Code.PROVIDER_ERROR, alarm)
    assert endings(keyless, Service(endpoint)) == [str(step.status)]  # asked once for the whole batch
    keyless.clock.ahead_ms += 30_000
    assert isinstance(keyless.push(keyless.fcm())[0], Accepted)


@pytest.mark.parametrize("service", [Service.STS, Service.IAM])
def test_a_step_that_is_out_of_reach_is_the_networks_fault(keyless: Stage, service: Service) -> None:
    keyless.control(lambda control: control.outage(service, "closed"))
    fault = refused(keyless.push(keyless.fcm())[0])
    assert (fault.code, fault.alarm) == (Code.NETWORK_ERROR, False)
    assert fault.reason.startswith("no bearer: ")
    keyless.control(lambda control: control.outage(service, "off"))
    keyless.clock.ahead_ms += 30_000
    assert isinstance(keyless.push(keyless.fcm())[0], Accepted)


def test_another_role_is_refused_and_its_secret_stays_here(keyless: Stage) -> None:
    role = keyless.lookalike.federation
    stranger = boto3.Session(
        aws_access_key_id=role.access_key_id,
        aws_secret_access_key="not-the-roles-own",
        aws_session_token=role.session,
        region_name="eu-west-1",
    )
    keyless.identity = RoleIdentity(session=stranger)
    keyless.renew_pusher()
    fault = refused(keyless.push(keyless.fcm())[0])
    assert fault.reason.endswith("invalid_grant: The signature does not match")
    assert (fault.scope, fault.alarm) == (Scope.CREDENTIALS, True)


@pytest.mark.parametrize(("kind", "endpoint"), [("service", "oauth"), ("external", "sts"), ("external", "iam")])
def test_a_redirect_of_a_grant_is_not_followed(stage: Stage, kind: str, endpoint: str) -> None:
    if kind == "external":
        stage.secrets.written["fcm"] = json.dumps(stage.lookalike.federation.json)
    elsewhere = f"{stage.lookalike.urls[Service.OAUTH]}/elsewhere"
    stage.script(endpoint, Step(do="answer", status=307, headers={"location": elsewhere}))
    assert "refused with HTTP 307" in refused(stage.push(stage.fcm())[0]).reason
    assert all(request.target in {"oauth", "sts", "iam"} for request in seen(stage, *Service))
    assert endings(stage, Service.OAUTH) == (["307"] if endpoint == "oauth" else [])


# --- renewals beside the batch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["service", "external"])
def test_a_bearer_near_its_end_is_renewed_beside_the_batch_that_it_serves(stage: Stage, kind: str) -> None:
    if kind == "external":
        stage.secrets.written["fcm"] = json.dumps(stage.lookalike.federation.json)
    stage.push(stage.fcm())
    stage.clock.ahead_ms += 57 * MINUTE_MS
    assert {type(verdict) for verdict in stage.push(*(stage.fcm(f"install:{n}") for n in range(20)))} == {Accepted}
    assert asyncio.all_tasks(stage.pusher._runner.get_loop()) == set()
    stage.push(stage.fcm())
    first, *beside, last = [request.bearer for request in seen(stage, Service.FCM)]
    assert set(beside) == {first}
    assert last != first
    assert len(seen(stage, Service.OAUTH if kind == "service" else Service.IAM)) == 2


def test_a_renewal_that_fails_beside_the_batch_costs_nothing_until_the_bearer_has_expired(stage: Stage) -> None:
    stage.push(stage.fcm())
    stage.script("oauth", Step(do="answer", status=503, times=None))
    stage.clock.ahead_ms += 57 * MINUTE_MS
    assert isinstance(stage.push(stage.fcm())[0], Accepted)
    assert isinstance(stage.push(stage.fcm())[0], Accepted)
    assert endings(stage, Service.OAUTH) == ["200", "503"]  # and it is not asked again within half a minute
    stage.clock.ahead_ms += 4 * MINUTE_MS
    fault = refused(stage.push(stage.fcm())[0])
    assert (fault.code, fault.alarm) == (Code.PROVIDER_ERROR, False)


# --- a 500 after an idle hour (Apple) ---------------------------------------------------------------------------------


def test_a_500_after_a_long_idle_renews_the_bearer_once_and_the_push_goes_out(stage: Stage) -> None:
    stage.push(stage.apns())
    stage.clock.ahead_ms += 21 * MINUTE_MS
    stage.script(PHONE, SERVER_ERROR)
    assert isinstance(stage.push(stage.apns())[0], Accepted)
    before, refused_one, after = [request.bearer for request in seen(stage, Service.APNS_PRODUCTION)]
    assert before == refused_one != after


def test_a_500_that_stays_is_asked_twice_and_renews_no_second_bearer_for_20_minutes(stage: Stage) -> None:
    stage.push(stage.apns())
    stage.clock.ahead_ms += 21 * MINUTE_MS
    stage.script(PHONE, replace(SERVER_ERROR, times=None))
    for _ in range(3):
        assert refused(stage.push(stage.apns())[0]).code is Code.PROVIDER_ERROR
    bearers = [request.bearer for request in seen(stage, Service.APNS_PRODUCTION)]
    assert len(bearers) == 1 + 2 + 1 + 1
    assert len(set(bearers)) == 2


def test_a_500_among_successes_is_apples_own(stage: Stage) -> None:
    stage.push(stage.apns())
    stage.clock.ahead_ms += 19 * MINUTE_MS
    stage.push(stage.apns())
    stage.clock.ahead_ms += 19 * MINUTE_MS
    stage.script(PHONE, SERVER_ERROR)
    assert refused(stage.push(stage.apns())[0]).code is Code.PROVIDER_ERROR
    assert len({request.bearer for request in seen(stage, Service.APNS_PRODUCTION)}) == 1


def test_a_clock_that_is_put_back_shows_apple_no_further_bearer(stage: Stage) -> None:
    stage.push(stage.apns())
    stage.clock.ahead_ms -= 45_000
    stage.push(stage.apns(), stage.apns("cd" * 32, Environment.SANDBOX))
    services = Service.APNS_PRODUCTION, Service.APNS_SANDBOX
    assert len({request.bearer for request in seen(stage, *services)}) == 1


# --- several apps, environments, topics and projects ------------------------------------------------------------------


def known_key(stage: Stage, *topics: str, environments: tuple[str, ...] = ("production", "sandbox")) -> ApnsCredentials:
    """A further key of Apple's, in a secret of its own."""
    key = new_apns_credentials(topics)
    stage.control(
        lambda control: control.register_apns_key(
            team_id=key.team_id,
            key_id=key.key_id,
            public_key_pem=key.public_key_pem,
            topics=topics,
            environments=environments,
        )
    )
    stage.secrets.written[key.key_id] = key.key_pem
    return ApnsCredentials(team_id=key.team_id, key_id=key.key_id, secret=key.key_id)


def of_app(push: Push, app: App, topic: str | None = None) -> Push:
    device = push.device if topic is None else replace(push.device, topic=topic)
    return replace(push, app=app, device=device)


def test_apps_environments_topics_and_projects_of_one_deployment_meet_their_own_keys_in_one_call(stage: Stage) -> None:
    stage.control(lambda control: control.register_project("shop-2"))
    stage.secrets.written["keyless"] = json.dumps(stage.lookalike.federation.json)
    watch = known_key(stage, "com.shop.watch", environments=("sandbox",))
    shop = App(
        app_id=AppId("shop"),
        apns_production=known_key(stage, "com.shop", environments=("production",)),
        apns_sandbox=known_key(stage, "com.shop", environments=("sandbox",)),
        apns_topic_keys=(
            ApnsTopicKey(environment=Environment.SANDBOX, topics=frozenset({"com.shop.watch"}), credentials=watch),
        ),
        fcm=FcmCredentials(project_id="shop-2", secret="keyless"),
    )
    pushes = [
        stage.apns("01" * 32),
        stage.apns("02" * 32, Environment.SANDBOX),
        stage.fcm("install:1"),
        of_app(stage.apns("03" * 32), shop, "com.shop"),
        of_app(stage.apns("04" * 32, Environment.SANDBOX), shop, "com.shop"),
        of_app(stage.apns("05" * 32, Environment.SANDBOX), shop, "com.shop.watch"),
        of_app(stage.fcm("install:2"), shop),
        of_app(stage.apns("06" * 32), shop, "com.shop.watch"),  # which production has no key for
    ]
    *served, wrong = stage.push(*pushes)
    assert {type(verdict) for verdict in served} == {Accepted}
    assert refused(wrong).reason == "TopicDisallowed"
    requests = seen(stage, Service.APNS_PRODUCTION, Service.APNS_SANDBOX, Service.FCM)
    bearers = {request.target: request.bearer for request in requests}
    assert bearers["01" * 32] == bearers["02" * 32]  # one key, two hosts
    assert len(set(bearers.values())) == 6  # four keys of Apple's and two accounts of Google's
    projects = {push.push_token: push.environment for push in stage.control(lambda control: control.accepted())}
    assert (projects["install:1"], projects["install:2"]) == ("pushlease-local", "shop-2")


def test_one_account_that_sends_for_two_projects_has_one_bearer(stage: Stage) -> None:
    stage.control(lambda control: control.register_project("shop-2"))
    other = App(app_id=AppId("shop"), fcm=FcmCredentials(project_id="shop-2", secret="fcm"))
    assert {type(verdict) for verdict in stage.push(stage.fcm(), of_app(stage.fcm(), other))} == {Accepted}
    assert endings(stage, Service.OAUTH) == ["200"]


# --- rotation ---------------------------------------------------------------------------------------------------------

DOUBT = {
    "apns": Step(do="answer", status=403, reason="InvalidProviderToken"),
    "fcm": Step(do="answer", status=403, body={"error": {"code": 403, "status": "PERMISSION_DENIED"}}),
}


@pytest.mark.parametrize("provider", ["apns", "fcm"])
def test_a_secret_that_cannot_be_used_does_not_replace_the_one_that_can(stage: Stage, provider: str) -> None:
    make: Callable[[], Push] = stage.apns if provider == "apns" else stage.fcm
    stage.push(make())
    stage.secrets.written[provider] = "half a file"
    stage.script(PHONE if provider == "apns" else INSTALL, DOUBT[provider])
    assert refused(stage.push(make())[0]).scope is Scope.CREDENTIALS
    assert stage.secrets.fresh_reads == 1
    assert isinstance(stage.push(make())[0], Accepted)


def test_a_key_of_googles_is_replaced_by_a_role_within_the_call(stage: Stage) -> None:
    stage.push(stage.fcm())
    stage.secrets.written["fcm"] = json.dumps(stage.lookalike.federation.json)
    stage.script(INSTALL, DOUBT["fcm"])
    assert isinstance(stage.push(stage.fcm())[0], Accepted)
    assert endings(stage, Service.IAM) == ["200"]


def test_a_deleted_key_of_googles_is_replaced_within_the_call_for_every_project_that_uses_it(stage: Stage) -> None:
    stage.control(lambda control: control.register_project("shop-2"))
    other = App(app_id=AppId("shop"), fcm=FcmCredentials(project_id="shop-2", secret="fcm"))
    deleted = new_service_account("gone", stage.lookalike.service_account.json["token_uri"])
    good, stage.secrets.written["fcm"] = stage.secrets.written["fcm"], json.dumps(deleted.json)
    stage.secrets.get("fcm")  # cached, as by an environment that began before the rotation
    stage.secrets.written["fcm"] = good
    verdicts = stage.push(stage.fcm(), of_app(stage.fcm("install:2"), other))
    assert {type(verdict) for verdict in verdicts} == {Accepted}
    assert stage.secrets.fresh_reads == 1
