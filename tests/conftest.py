"""What all tests share: one emulator for the whole run, started only if a test asks for it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import cfnlint.decode  # type: ignore[import-untyped]
import pytest
from hypothesis import settings

import builders
from pushlease_local.emulator import TEMPLATE, EmbeddedAws
from pushlease_local.scan import Finding, findings, push_tokens_of, texts_of
from pushlease_local.stack import EVENTS
from translated import Translated, moto_dynamodb

_serials = count(1)
settings.register_profile("long", max_examples=2_000)  # twenty times the default; for `--hypothesis-profile=long`


@pytest.fixture(scope="session")
def template_tables() -> Mapping[str, Mapping[str, Any]]:
    """The template's DynamoDB tables by their short lower-case names, as CloudFormation has their properties."""
    template, faults = cfnlint.decode.decode(str(TEMPLATE))
    assert template is not None
    assert not faults
    return {
        name.removesuffix("Table").lower(): resource["Properties"]
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::DynamoDB::Table"
    }


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """An empty AWS on this machine; clients of this process talk to it, and to nothing else."""
    state: Path = tmp_path_factory.mktemp("aws")
    with EmbeddedAws(state) as emulator, pytest.MonkeyPatch.context() as environment:
        for name, value in emulator.env.items():
            environment.setenv(name, value)
        # boto3's default session may have been made before, in another environment.
        environment.setattr(boto3, "DEFAULT_SESSION", None)
        yield emulator


@pytest.fixture(scope="session")
def make_table(aws: EmbeddedAws, template_tables: Mapping[str, Mapping[str, Any]]) -> "TableMaker":
    """Make a fresh table of one of the template's kinds."""
    return TableMaker(aws.session().client("dynamodb"), template_tables)


@pytest.fixture(scope="session")
def moto(template_tables: Mapping[str, Mapping[str, Any]]) -> "Moto":
    """A second DynamoDB, so that one emulator's leniency proves nothing; no other client meets it."""
    client = Translated(moto_dynamodb())
    return Moto(client=client, make_table=TableMaker(client, template_tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moto:
    """Moto's DynamoDB: a client, and a maker of fresh tables."""

    client: Any
    make_table: "TableMaker"


class TableMaker:
    """Makes fresh tables, keyed and indexed as the template has them."""

    def __init__(self, client: Any, tables: Mapping[str, Mapping[str, Any]]) -> None:
        self._client = client
        self._tables = tables

    def __call__(self, kind: str) -> str:
        """The new table's name."""
        name = f"{kind}-{next(_serials)}"
        wanted = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
        properties = {key: _plain(value) for key, value in self._tables[kind].items() if key in wanted}
        self._client.create_table(TableName=name, **properties)
        return name


def _plain(value: Any) -> Any:
    """cfn-lint's nodes carry their lines; boto wants plain values."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, str) else value


class OutputScan:
    """Scans all that the tests printed and logged for what must not be there; one finding fails the run.

    That is credentials, whoever's they are, and the push tokens and message texts of builders and of ``events/``.
    """

    def __init__(self) -> None:
        self._lines: list[tuple[str, str]] = []
        self.found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # The last phase's report carries what all phases captured. A failure's own text is not what the code said.
        if report.when != "teardown":
            return
        captured = [text for title, text in report.sections if title.startswith("Captured")]
        self._lines += [(report.nodeid, line) for text in captured for line in text.splitlines()]

    def scan(self, lines: Sequence[str]) -> Sequence[Finding]:
        said = [json.loads(path.read_text()) for path in EVENTS.glob("*/*.json")]
        # A record's body is a queue's message: ids, and no word of a notification.
        read = texts_of([asdict(builders.some_content()), *(event for event in said if "Records" not in event)])
        shown = {*builders.push_tokens, *push_tokens_of(said)}
        return findings(lines, secrets=[], push_tokens=shown, texts={*read})

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        found = self.scan([line for _, line in self._lines])
        self.found = [f"{finding.kind} logged in {self._lines[finding.line - 1][0]}" for finding in found]
        if self.found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(
            f"{len(self._lines)} captured lines scanned for secrets, {len(self.found)} findings"
        )
        for finding in self.found:
            terminalreporter.write_line(finding, red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(OutputScan(), "output-scan")
