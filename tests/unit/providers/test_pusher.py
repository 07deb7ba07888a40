"""The pusher against the look-alike providers: real HTTP/2, TLS, bearers and grants, with misbehaviour on demand."""

import asyncio
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from pushlease.codes import Code
from pushlease.push.builder import live_activity_end
from pushlease.push.device import Address, Environment
from pushlease.push.notification import Content
from pushlease.push.outcome import Accepted, NotTried, Scope, Verdict
from pushlease_local.lookalike import Service, Step
from pushlease_local.lookalike.credentials import new_apns_credentials
from staged import INSTALL, Stage, refused


def tokens(count: int) -> list[str]:
    return [f"{number:064x}" for number in range(1, count + 1)]


def test_one_call_reaches_both_of_apples_hosts_and_google(stage: Stage) -> None:
    production, sandbox, google = stage.apns(), stage.apns("cd" * 32, Environment.SANDBOX), stage.fcm()
    verdicts = stage.push(production, google, sandbox)
    assert [type(verdict) for verdict in verdicts] == [Accepted] * 3
    assert verdicts[0] == Accepted(provider_id=production.push_id)
    arrived = {push.push_token: push for push in stage.control(lambda control: control.accepted())}
    assert arrived["ab" * 32].body == {"aps": {"alert": {"title": "Hello", "body": "Grüße"}}}
    assert arrived["cd" * 32].environment == "sandbox"
    assert arrived[INSTALL].body["android"]["notification"] == {"tag": "once"}


def test_a_batch_beyond_the_stream_limit_arrives_once_each_over_one_connection_and_bearer(stage: Stage) -> None:
    verdicts = stage.push(*(stage.apns(push_token) for push_token in tokens(130)))
    assert all(isinstance(verdict, Accepted) for verdict in verdicts)
    again = stage.push(*(stage.fcm(push_token) for push_token in tokens(110)))
    assert all(isinstance(verdict, Accepted) for verdict in again)
    arrived = [push.push_token for push in stage.control(lambda control: control.accepted())]
    assert sorted(arrived) == sorted(tokens(130) + tokens(110))
    counts = stage.control(lambda control: control.counts())
    assert sum(counts["oauth"].values()) == 1


def test_both_of_apples_hosts_see_one_bearer_of_one_key(stage: Stage) -> None:
    pushes = [stage.apns(push_token, environment) for environment in Environment for push_token in tokens(20)]
    assert all(isinstance(verdict, Accepted) for verdict in stage.push(*pushes))
    seen = stage.control(lambda control: control.requests())
    assert {request.service for request in seen} == {"apns-production", "apns-sandbox"}
    (bearer,) = {request.bearer for request in seen}
    assert bearer > 0


def test_google_accepts_while_apple_is_silent(stage: Stage) -> None:
    stage.pusher.close()
    stage.pusher = stage.new_pusher(timedelta(seconds=60))  # Apple's silence outlasts the test, unless it is cut
    stage.script("01" * 32, Step(do="silence"))
    verdicts: list[Verdict] = []
    pushing = threading.Thread(target=lambda: verdicts.extend(stage.push(stage.apns("01" * 32), stage.fcm())))
    pushing.start()
    try:
        served = stage.lookalike.control.wait(accepted=1, requests=2)
        assert asyncio.run_coroutine_threadsafe(served, stage.loop).result(timeout=15)
        assert [push.push_token for push in stage.control(lambda control: control.accepted())] == [INSTALL]
        assert pushing.is_alive()
    finally:
        stage.control(lambda control: control.outage("apns-production", "closed"))
        pushing.join()
        stage.control(lambda control: control.outage("apns-production", "off"))
    apple, google = verdicts
    assert refused(apple).code is Code.NETWORK_ERROR
    assert isinstance(google, Accepted)


def test_each_push_gets_its_own_verdict_in_order(stage: Stage) -> None:
    dead = Step(do="answer", status=410, reason="Unregistered", timestamp_ms=stage.clock())
    stage.script("01" * 32, dead)
    slow = Step(do="answer", status=429, reason="TooManyRequests", headers={"retry-after": "7"})
    stage.script("02" * 32, slow)
    odd = replace(stage.apns(), push_id="not a uuid")
    broken = replace(stage.apns(), content=None)  # type: ignore[arg-type]  # a bug of ours, met while building
    huge = replace(stage.apns(), content=Content(body="é" * 2040))
    pushes = [stage.apns("01" * 32), stage.apns(), stage.apns("02" * 32), odd, broken, huge]
    gone, fine, later, malformed, fault, large = stage.push(*pushes)
    assert isinstance(fine, Accepted)
    assert (refused(gone).code, refused(gone).disable_before_ms) == (Code.INVALID_TOKEN, dead.timestamp_ms)
    assert (refused(later).code, refused(later).retry_after) == (Code.RATE_LIMITED, timedelta(seconds=7))
    assert (refused(malformed).code, refused(malformed).reason[:8]) == (Code.REJECTED, "push_id:")
    assert (refused(fault).code, refused(fault).reason) == (Code.INTERNAL_ERROR, "AttributeError")
    assert refused(large).code is Code.PAYLOAD_TOO_LARGE


def test_an_app_without_credentials_for_a_device_is_not_configured(stage: Stage) -> None:
    stage.app = replace(stage.app, fcm=None)
    apple, google = stage.push(stage.apns(), stage.fcm())
    assert isinstance(apple, Accepted)
    assert refused(google).code is Code.PROVIDER_ERROR


@pytest.mark.parametrize("provider", ["apns", "fcm"])
def test_an_expired_bearer_is_renewed_and_the_pushes_go_out_in_the_same_call(stage: Stage, provider: str) -> None:
    make = stage.apns if provider == "apns" else stage.fcm
    stage.push(make())
    stage.control(lambda control: control.expire_bearers(provider))  # type: ignore[arg-type]  # one of the two
    verdicts = stage.push(*(make(push_token) for push_token in tokens(20)))
    assert [verdict for verdict in verdicts if not isinstance(verdict, Accepted)] == []


@pytest.mark.parametrize("outage", ["503", "closed"])
def test_one_providers_outage_is_not_the_others(stage: Stage, outage: str) -> None:
    stage.control(lambda control: control.outage("apns-production", outage))  # type: ignore[arg-type]  # one of three
    try:
        *apple, google = stage.push(*(stage.apns(push_token) for push_token in tokens(10)), stage.fcm())
    finally:
        stage.control(lambda control: control.outage("apns-production", "off"))
    assert isinstance(google, Accepted)
    expected = Code.PROVIDER_ERROR if outage == "503" else Code.NETWORK_ERROR
    assert {refused(verdict).code for verdict in apple} == {expected}


def test_a_broken_key_is_the_credentials_fault_and_its_text_stays_secret(stage: Stage) -> None:
    assert stage.app.apns_production
    stage.app = replace(stage.app, apns_production=replace(stage.app.apns_production, secret="broken"))
    apple, google = stage.push(stage.apns(), stage.fcm())
    assert isinstance(google, Accepted)
    fault = refused(apple)
    assert (fault.code, fault.scope, fault.alarm) == (Code.PROVIDER_ERROR, Scope.CREDENTIALS, True)
    assert "no key" not in fault.reason


def test_a_rotated_key_heals_within_the_call_and_on_every_route_that_uses_it(stage: Stage) -> None:
    stage.secrets.written["apns"] = new_apns_credentials(()).key_pem
    pair = stage.apns(), stage.apns("cd" * 32, Environment.SANDBOX)
    assert {refused(verdict).code for verdict in stage.push(*pair)} == {Code.PROVIDER_ERROR}
    reads = stage.secrets.fresh_reads
    stage.push(*pair)
    assert stage.secrets.fresh_reads == reads  # refused again within the minute: no further paid call
    stage.secrets.written["apns"] = stage.lookalike.apns.key_pem
    stage.clock.ahead_ms += 61_000
    first = stage.push(*pair)
    second = stage.push(*pair)
    assert any(isinstance(verdict, Accepted) for verdict in first)
    assert all(isinstance(verdict, Accepted) for verdict in second)


def test_a_burst_of_bad_push_tokens_is_seen_before_it_costs_the_first_device(stage: Stage) -> None:
    assert isinstance(stage.push(stage.apns())[0], Accepted)
    bad = Step(do="answer", status=400, reason="BadDeviceToken", times=None)
    for push_token in tokens(30):
        stage.script(push_token, bad)
    verdicts = [refused(verdict) for verdict in stage.push(*(stage.apns(push_token) for push_token in tokens(30)))]
    assert {(verdict.code, verdict.disable_before_ms, verdict.alarm) for verdict in verdicts} == {
        (Code.REJECTED, None, True)
    }


def test_a_channel_and_an_install_are_reached_by_their_own_names(stage: Stage) -> None:
    channel, install = stage.apns("dHN0LXNyY2g="), stage.fcm("fid-1")
    verdicts = stage.push(
        replace(
            channel,
            device=replace(channel.device, address=Address.CHANNEL),
            content=live_activity_end(at_s=1_800_000_000),
        ),
        replace(install, device=replace(install.device, address=Address.FID)),
    )
    assert [type(verdict) for verdict in verdicts] == [Accepted] * 2
    arrived = {push.push_token: push for push in stage.control(lambda control: control.accepted())}
    assert arrived["dHN0LXNyY2g="].topic == "com.example.app"
    assert arrived["fid-1"].body["fid"] == "fid-1"


def test_a_push_token_of_apples_other_host_is_taken_there(stage: Stage) -> None:
    stage.control(
        lambda control: control.register_push_token("ef" * 32, environment="sandbox", topic="com.example.app")
    )
    sound, misplaced = stage.push(stage.apns(), stage.apns("ef" * 32, Environment.PRODUCTION))
    assert isinstance(sound, Accepted)
    assert sound.environment is None
    assert isinstance(misplaced, Accepted)
    assert misplaced.environment is Environment.SANDBOX
    (there,) = (push for push in stage.control(lambda control: control.accepted()) if push.environment == "sandbox")
    assert there.push_token == "ef" * 32


def test_a_push_token_that_both_hosts_refuse_is_bad_and_tried_once_on_each(stage: Stage) -> None:
    assert isinstance(stage.push(stage.apns())[0], Accepted)
    stage.script("cd" * 32, Step(do="answer", status=400, reason="BadDeviceToken", times=None))
    verdict = refused(stage.push(stage.apns("cd" * 32))[0])
    assert (verdict.code, verdict.disable_before_ms is None) == (Code.INVALID_TOKEN, False)
    seen = [request for request in stage.control(lambda control: control.requests()) if request.target == "cd" * 32]
    assert [request.service for request in seen] == ["apns-production", "apns-sandbox"]


def test_an_app_of_one_host_tries_no_other(stage: Stage) -> None:
    stage.app = replace(stage.app, apns_sandbox=None)
    stage.script("cd" * 32, Step(do="answer", status=400, reason="BadDeviceToken", times=None))
    assert refused(stage.push(stage.apns("cd" * 32))[0]).code is Code.INVALID_TOKEN
    assert stage.control(lambda control: control.counts()) == {"apns-production": {"BadDeviceToken": 1}}


def test_what_the_other_host_leaves_open_disables_nobody(stage: Stage) -> None:
    assert isinstance(stage.push(stage.apns())[0], Accepted)
    bad = Step(do="answer", status=400, reason="BadDeviceToken")
    stage.control(lambda control: control.script("cd" * 32, [bad, Step(do="accept_then_reset")]))
    verdict = refused(stage.push(stage.apns("cd" * 32))[0])
    assert (verdict.code, verdict.disable_before_ms) == (Code.INVALID_TOKEN, None)


DOUBT = {"error": {"code": 400, "message": "Request contains an invalid argument.", "status": "INVALID_ARGUMENT"}}


@pytest.mark.parametrize("probe_fails", [True, False])
def test_google_is_asked_whether_it_is_the_push_token_or_the_payload(stage: Stage, probe_fails: bool) -> None:
    assert isinstance(stage.push(stage.fcm())[0], Accepted)
    doubt = Step(do="answer", status=400, body=DOUBT, times=2 if probe_fails else 1)
    stage.script("in:doubt", doubt)
    verdict = refused(stage.push(stage.fcm("in:doubt"))[0])
    assert verdict.code is (Code.INVALID_TOKEN if probe_fails else Code.REJECTED)
    assert (verdict.disable_before_ms is not None) == probe_fails
    assert len(stage.control(lambda control: control.accepted())) == 1  # the probe delivers nothing


def test_a_payload_that_google_refuses_for_all_is_probed_three_times_at_most(stage: Stage) -> None:
    for number in range(20):
        stage.script(f"in:doubt-{number}", Step(do="answer", status=400, body=DOUBT))
    verdicts = stage.push(*(stage.fcm(f"in:doubt-{number}") for number in range(20)))
    assert {refused(verdict).code for verdict in verdicts} == {Code.REJECTED}
    asked = [request for request in stage.control(lambda control: control.requests()) if request.service == "fcm"]
    assert len(asked) == 23


def test_silence_ends_at_the_request_timeout_and_the_next_call_has_a_new_connection(stage: Stage) -> None:
    stage.pusher.close()
    stage.pusher = stage.new_pusher(timedelta(seconds=0.3))
    stage.script("01" * 32, Step(do="silence"))
    (verdict,) = stage.push(stage.apns("01" * 32))
    assert refused(verdict).code is Code.NETWORK_ERROR
    assert isinstance(stage.push(stage.apns())[0], Accepted)


def test_a_call_is_back_by_its_deadline_whatever_is_silent(stage: Stage) -> None:
    stage.script("*", Step(do="silence", times=None))
    began = time.monotonic()
    verdicts = stage.push(*(stage.apns(push_token) for push_token in tokens(120)), within_s=0.5)
    assert time.monotonic() - began < 3
    assert {refused(verdict).code for verdict in verdicts} == {Code.NETWORK_ERROR}


def test_what_the_servers_stream_limit_left_no_time_for_was_not_tried(stage: Stage) -> None:
    stage.control(lambda control: control.max_concurrent_streams("apns-production", 5))
    stage.script("*", Step(do="silence", times=None))
    verdicts = stage.push(*(stage.apns(push_token) for push_token in tokens(40)), within_s=1)
    tried = [verdict for verdict in verdicts if verdict != NotTried()]
    assert {refused(verdict).code for verdict in tried} == {Code.NETWORK_ERROR}
    assert 1 <= len(tried) <= 5


def test_a_stream_limit_lowered_under_load_cannot_hold_a_call_up(stage: Stage) -> None:
    stage.pusher.close()
    stage.pusher = stage.new_pusher(timedelta(seconds=2))
    for push_token in tokens(60)[1:]:  # the first goes alone, and is answered
        stage.script(push_token, Step(do="silence"))

    def lower_once_busy() -> None:
        busy = stage.lookalike.control.wait(requests=20)
        assert asyncio.run_coroutine_threadsafe(busy, stage.loop).result(timeout=10)
        stage.control(lambda control: control.max_concurrent_streams("apns-production", 1))

    lowering = threading.Thread(target=lower_once_busy)
    lowering.start()
    began = time.monotonic()
    verdicts = stage.push(*(stage.apns(push_token) for push_token in tokens(60)), within_s=6)
    lowering.join()
    assert time.monotonic() - began < 20  # its deadline, and a busy machine's delays; without it nothing would end
    assert isinstance(verdicts[0], Accepted)
    assert {refused(verdict).code for verdict in verdicts[1:]} == {Code.NETWORK_ERROR}
    stage.control(lambda control: control.reset())
    assert isinstance(stage.push(stage.apns())[0], Accepted)


def test_a_refused_stream_is_resent_at_once_because_nobody_acted_on_it(stage: Stage) -> None:
    stage.script("01" * 32, Step(do="reset", code=7))
    assert isinstance(stage.push(stage.apns("01" * 32))[0], Accepted)


def test_an_ambiguous_reset_is_left_to_the_retry(stage: Stage) -> None:
    stage.script("01" * 32, Step(do="accept_then_reset"))
    assert refused(stage.push(stage.apns("01" * 32))[0]).code is Code.NETWORK_ERROR
    assert len(stage.control(lambda control: control.accepted())) == 1


@pytest.mark.parametrize("provider", ["apns", "fcm"])
def test_a_connection_idle_for_more_than_a_minute_is_asked_or_replaced_before_use(stage: Stage, provider: str) -> None:
    """Apple's is asked by a PING; Google calls PINGs too many."""
    make, service = (stage.apns, Service.APNS_PRODUCTION) if provider == "apns" else (stage.fcm, Service.FCM)
    stage.push(make())
    connections = stage.lookalike.control.listeners[service].connections
    (before,) = stage.control(lambda control: list(connections))
    stage.clock.ahead_ms += 61_000
    assert isinstance(stage.push(make())[0], Accepted)
    after = set(stage.control(lambda control: list(connections)))
    assert (after == {before}) == (provider == "apns")


def test_nothing_goes_on_after_the_call(stage: Stage) -> None:
    stage.script("*", Step(do="silence", times=None))
    stage.push(stage.apns(), stage.fcm(), within_s=0.3)
    assert asyncio.all_tasks(stage.pusher._runner.get_loop()) == set()
