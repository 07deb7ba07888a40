"""What the template promises, read from the template itself."""

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cfnlint.api  # type: ignore[import-untyped] # has no stubs
import cfnlint.decode  # type: ignore[import-untyped] # the same
import pytest

from pushlease.settings import parse
from pushlease_local.emulator import run, uv_tool

TEMPLATE_FILE = Path(__file__).parents[2] / "infra" / "template.yaml"

FUNCTIONS = ("Send", "Deliver", "Drain", "Redrive", "Registry")
CONSUMERS = {"Work": "Deliver", "Bulk": "Deliver", "Tick": "Drain", "Burial": "Redrive"}


@pytest.fixture(scope="module")
def template() -> Mapping[str, Any]:
    decoded: Mapping[str, Any] | None
    decoded, faults = cfnlint.decode.decode(str(TEMPLATE_FILE))
    assert not faults
    assert decoded is not None
    return decoded


def of_type(template: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {name: it["Properties"] for name, it in template["Resources"].items() if it["Type"] == kind}


def queue_mappings(template: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield (queue, function, mapping) by their short names."""
    for name, function in of_type(template, "AWS::Serverless::Function").items():
        for event in function.get("Events", {}).values():
            if event["Type"] == "SQS":
                queue = event["Properties"]["Queue"]["Fn::GetAtt"][0]
                yield queue.removesuffix("Queue"), name.removesuffix("Function"), event["Properties"]


def statements(template: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, role in of_type(template, "AWS::IAM::Role").items():
        for policy in role["Policies"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                yield name.removesuffix("Role"), statement
    for name, policy in of_type(template, "AWS::IAM::ManagedPolicy").items():
        for statement in policy["PolicyDocument"]["Statement"]:
            yield name, statement


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def holders(template: Mapping[str, Any], action: str) -> dict[str, set[str]]:
    """Return who may do `action`, by the name of each queue or table it is allowed on."""
    found: dict[str, set[str]] = {}
    for owner, statement in statements(template):
        if action in as_list(statement["Action"]):
            for resource in as_list(statement["Resource"]):
                if "Fn::GetAtt" in resource:
                    found.setdefault(resource["Fn::GetAtt"][0], set()).add(owner)
    return found


def test_cfn_lint_finds_nothing() -> None:
    config = cfnlint.api.ManualArgs(regions=["eu-west-1", "us-east-1"])
    assert cfnlint.api.lint(TEMPLATE_FILE.read_text(), config=config) == []


@pytest.mark.slow
def test_the_sam_cli_that_deploys_it_finds_it_valid(tmp_path: Path) -> None:
    env = {
        **os.environ,  # noqa: TID251  (a tool starts in its caller's environment)
        "AWS_DEFAULT_REGION": "eu-west-1",
        "SAM_CLI_TELEMETRY": "0",
        "__SAM_CLI_APP_DIR": str(tmp_path),
    }
    sam = uv_tool("sam.txt", "--from", "aws-sam-cli", "sam")
    said = run([*sam, "validate", "--lint", "--template", str(TEMPLATE_FILE)], env, tmp_path)
    assert "is a valid SAM Template" in said


def test_every_function_is_built_from_one_package_and_has_its_own_handler_role_and_log(
    template: Mapping[str, Any],
) -> None:
    functions = of_type(template, "AWS::Serverless::Function")
    assert template["Globals"]["Function"]["CodeUri"] == "../functions"
    assert {name.removesuffix("Function"): it["Handler"] for name, it in functions.items()} == {
        name: f"{name.lower()}.handler.handle" for name in FUNCTIONS
    }
    for name in FUNCTIONS:
        function = functions[f"{name}Function"]
        assert function["Role"] == {"Fn::GetAtt": [f"{name}Role", "Arn"]}
        assert function["LoggingConfig"]["LogGroup"] == {"Ref": f"{name}Logs"}
        assert "CodeUri" not in function
    assert all("RetentionInDays" in logs for logs in of_type(template, "AWS::Logs::LogGroup").values())


class Environment(dict[str, str]):
    """What a function is given with every parameter at its default, or at those chosen; notes what is asked for."""

    def __init__(self, template: Mapping[str, Any], **chosen: object) -> None:
        defaults = {name: parameter["Default"] for name, parameter in template["Parameters"].items()}
        self.asked: set[str] = set()
        for name, value in template["Globals"]["Function"]["Environment"]["Variables"].items():
            text = value
            if isinstance(value, dict):
                # One that is left out when empty stands in an Fn::If.
                reference = value["Ref"] if "Ref" in value else value["Fn::If"][1]["Ref"]
                text = {**defaults, **chosen}.get(reference, f"the-{reference}")
            if text != "":
                self[name] = str(text)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


def test_the_settings_are_given_every_variable_that_they_ask_for(template: Mapping[str, Any]) -> None:
    environment = Environment(template)
    parse(environment)
    given = set(template["Globals"]["Function"]["Environment"]["Variables"])
    # The dead letters' address is for operators' tools; the last two configure Powertools.
    others = {"PUSHLEASE_DEAD_LETTERS_QUEUE_URL", "POWERTOOLS_METRICS_NAMESPACE", "POWERTOOLS_LOG_LEVEL"}
    assert given - others == environment.asked
    for function in of_type(template, "AWS::Serverless::Function").values():
        assert set(function["Environment"]["Variables"]) == {"POWERTOOLS_SERVICE_NAME"}


def test_the_template_and_the_settings_have_the_same_defaults(template: Mapping[str, Any]) -> None:
    environment = Environment(template)
    required = {name: text for name, text in environment.items() if name.endswith(("_TABLE", "_QUEUE_URL"))}
    given, default = parse(environment), parse(required)
    assert replace(given, retry=default.retry) == default
    assert list(map(given.retry.schedule, range(1, 10))) == list(map(default.retry.schedule, range(1, 10)))


def test_the_settings_take_whatever_the_template_takes(template: Mapping[str, Any]) -> None:
    for name, parameter in template["Parameters"].items():
        bounds = [parameter[bound] for bound in ("MinValue", "MaxValue") if bound in parameter]
        for value in parameter.get("AllowedValues", bounds):
            # A lease has to outlast its function, a request to fit into it: whichever is not under test gives way.
            timeout_s = 10 if name == "LeaseS" else 150
            chosen = {"FunctionTimeoutS": timeout_s, "LeaseS": 3600, "RequestTimeoutS": 1, name: value}
            assert parse(Environment(template, **chosen)), (name, value)


def test_no_variable_is_empty(template: Mapping[str, Any]) -> None:
    for name, value in template["Globals"]["Function"]["Environment"]["Variables"].items():
        if isinstance(value, dict) and "Ref" in value:
            parameter = template["Parameters"].get(value["Ref"])
            assert parameter is None or parameter["Default"] != "", name


def test_every_parameter_is_described_has_a_default_and_is_used(template: Mapping[str, Any]) -> None:
    text = TEMPLATE_FILE.read_text()
    grouped = itertools.chain.from_iterable(
        group["Parameters"] for group in template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    )
    assert sorted(grouped) == sorted(template["Parameters"])
    for name, parameter in template["Parameters"].items():
        assert parameter["Description"]
        assert "Default" in parameter
        assert f"!Ref {name}" in text or f"${{{name}}}" in text, f"{name} changes nothing"
        if parameter["Type"] == "Number":
            assert "AllowedValues" in parameter or {"MinValue", "MaxValue"} <= set(parameter), f"{name} is unbounded"


def test_visibility_is_six_timeouts_and_nothing_is_gathered_first(template: Mapping[str, Any]) -> None:
    queues = of_type(template, "AWS::SQS::Queue")
    timeouts = [str(timeout) for timeout in template["Parameters"]["FunctionTimeoutS"]["AllowedValues"]]
    assert timeouts == list(template["Mappings"]["Spans"])
    for queue, _, mapping in queue_mappings(template):
        visibility = queues[f"{queue}Queue"]["VisibilityTimeout"]["Fn::FindInMap"]
        assert visibility == ["Spans", {"Ref": "FunctionTimeoutS"}, "VisibilityS"]
        assert "MaximumBatchingWindowInSeconds" not in mapping  # it would come on top
        for timeout_s in timeouts:
            assert template["Mappings"]["Spans"][timeout_s]["VisibilityS"] >= 6 * int(timeout_s)


def test_each_queue_has_its_consumer_and_reports_single_failures(template: Mapping[str, Any]) -> None:
    mappings = list(queue_mappings(template))
    assert {queue: function for queue, function, _ in mappings} == CONSUMERS
    for queue, _, mapping in mappings:
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"], queue
        assert "MaximumConcurrency" in mapping["ScalingConfig"], queue


def test_sqs_itself_moves_what_is_refused_three_times(template: Mapping[str, Any]) -> None:
    queues = of_type(template, "AWS::SQS::Queue")
    policies = {name: queue["RedrivePolicy"] for name, queue in queues.items() if "RedrivePolicy" in queue}
    to_dead_letters = {"deadLetterTargetArn": {"Fn::GetAtt": ["DeadLettersQueue", "Arn"]}, "maxReceiveCount": 3}
    requests = policies.pop("RequestsQueue")  # refused requests are nothing that a redrive revives
    assert requests["deadLetterTargetArn"] == {"Fn::GetAtt": ["RefusedRequestsQueue", "Arn"]}
    assert policies == dict.fromkeys(("WorkQueue", "BulkQueue", "BurialQueue"), to_dead_letters)


def test_dead_letters_outlive_the_queues_that_they_come_from(template: Mapping[str, Any]) -> None:
    retention = {name: it["MessageRetentionPeriod"] for name, it in of_type(template, "AWS::SQS::Queue").items()}
    fourteen_days_s = 14 * 24 * 3600
    assert retention.pop("DeadLettersQueue") == fourteen_days_s == retention.pop("RefusedRequestsQueue")
    assert all(seconds <= fourteen_days_s - 7 * 24 * 3600 for seconds in retention.values())


def test_a_tick_is_never_retried(template: Mapping[str, Any]) -> None:
    drain = template["Resources"]["DrainFunction"]["Properties"]
    (schedule,) = (event["Properties"] for event in drain["Events"].values() if event["Type"] == "ScheduleV2")
    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert schedule["Input"] == '{"kind":"tick"}'
    assert schedule["RetryPolicy"]["MaximumRetryAttempts"] == 0
    assert drain["EventInvokeConfig"]["MaximumRetryAttempts"] == 0
    assert "RedrivePolicy" not in template["Resources"]["TickQueue"]["Properties"]


def test_the_drain_reserves_no_concurrency_unless_told_to(template: Mapping[str, Any]) -> None:
    condition, reserved, otherwise = template["Resources"]["DrainFunction"]["Properties"][
        "ReservedConcurrentExecutions"
    ]["Fn::If"]
    assert template["Parameters"]["DrainReservedConcurrency"]["Default"] == 0
    assert template["Conditions"][condition] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "DrainReservedConcurrency"}, 0]}]}
    assert (reserved, otherwise) == ({"Ref": "DrainReservedConcurrency"}, {"Ref": "AWS::NoValue"})


def test_jobs_are_found_by_what_only_some_rows_have_and_an_index_holds_keys_alone(template: Mapping[str, Any]) -> None:
    jobs = of_type(template, "AWS::DynamoDB::Table")["JobsTable"]
    keys = {
        index["IndexName"]: [(key["AttributeName"], key["KeyType"]) for key in index["KeySchema"]]
        for index in jobs["GlobalSecondaryIndexes"]
    }
    assert keys == {
        "due": [("lane", "HASH"), ("due_at", "RANGE")],
        "recipient": [("recipient", "HASH"), ("created_at", "RANGE")],
    }
    assert all(index["Projection"] == {"ProjectionType": "KEYS_ONLY"} for index in jobs["GlobalSecondaryIndexes"])
    assert [key["AttributeName"] for key in jobs["KeySchema"]] == ["job_id"]


def test_tables_cost_nothing_idle_and_can_be_restored(template: Mapping[str, Any]) -> None:
    tables = of_type(template, "AWS::DynamoDB::Table")
    assert len(tables) == 8
    for name, table in tables.items():
        assert table["BillingMode"] == "PAY_PER_REQUEST", name
        assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}, name
        assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}, name
        assert table["SSESpecification"]["SSEEnabled"] is True, name


def test_no_permission_names_every_action_or_every_resource(template: Mapping[str, Any]) -> None:
    for owner, statement in statements(template):
        assert all("*" not in action for action in as_list(statement["Action"])), owner
        for resource in as_list(statement["Resource"]):
            pattern = resource.get("Fn::Sub", "") if isinstance(resource, dict) else resource
            below = (":secret:${SecretPrefix}*", ":s3:::${AudienceBucket}/*")
            assert "*" not in pattern or pattern.endswith(below), owner


def test_no_managed_policy_widens_a_role(template: Mapping[str, Any]) -> None:
    for name, role in of_type(template, "AWS::IAM::Role").items():
        assert "ManagedPolicyArns" not in role, name
    for name, function in of_type(template, "AWS::Serverless::Function").items():
        assert "Policies" not in function, name


def test_only_the_two_that_push_read_the_secrets(template: Mapping[str, Any]) -> None:
    readers = {owner for owner, it in statements(template) if "secretsmanager:GetSecretValue" in as_list(it["Action"])}
    assert readers == {"Deliver", "Drain"}


def test_only_the_registry_adds_and_removes_apps_and_devices(template: Mapping[str, Any]) -> None:
    for action in ("PutItem", "DeleteItem"):
        writers = holders(template, f"dynamodb:{action}")
        assert writers.get("AppsTable") == writers.get("DevicesTable") == {"Registry"}, action
    assert holders(template, "dynamodb:ConditionCheckItem") == {"DevicesTable": {"Registry"}}
    assert "DevicesTable" not in holders(template, "dynamodb:BatchWriteItem")
    updaters = holders(template, "dynamodb:UpdateItem")
    assert updaters["AppsTable"] == {"Registry"}
    assert updaters["FlowTable"] == {"Deliver", "Drain"}
    assert updaters["DevicesTable"] == {"Deliver", "Drain"}  # a refused push_token disables its device


def test_a_queue_is_read_by_its_consumer_alone_and_nobody_writes_to_dead_letters(template: Mapping[str, Any]) -> None:
    consumers = {f"{queue}Queue": {function} for queue, function in CONSUMERS.items()}
    consumers["RequestsQueue"] = {"RequestsPolicy"}  # of the send role, where there is such a queue
    assert template["Resources"]["RequestsPolicy"]["Properties"]["Roles"] == [{"Ref": "SendRole"}]
    for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ChangeMessageVisibility"):
        assert holders(template, f"sqs:{action}") == consumers, action
    assert not {"DeadLettersQueue", "RequestsQueue", "RefusedRequestsQueue"} & set(holders(template, "sqs:SendMessage"))


def test_outputs_name_every_function_queue_and_table(template: Mapping[str, Any]) -> None:
    kinds = {"Function": ("Name", "Arn"), "Queue": ("Url",), "Table": ("Name",)}
    expected = {
        f"{name}{suffix}"
        for name in template["Resources"]
        for kind, suffixes in kinds.items()
        if name.endswith(kind)
        for suffix in suffixes
    }
    assert set(template["Outputs"]) == expected | {"SendUrl"}
