"""docs/cost.md shows what the script computes, from the units that the contract tests assert."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_document_are_the_scripts() -> None:
    script = runpy.run_path(str(ROOT / "tests" / "bench" / "cost.py"))
    document = (ROOT / "docs" / "cost.md").read_text()
    for table in ("paths_table", "beside_table"):
        assert script[table]() in document


def test_what_a_backlog_costs_is_what_the_script_counts() -> None:
    script = runpy.run_path(str(ROOT / "tests" / "bench" / "scale.py"))
    document = (ROOT / "docs" / "cost.md").read_text()
    counted = [line for line in script["prices"]([1_000]).splitlines() if line.startswith("| 1,000")]
    assert len(counted) == 2
    assert all(line in document for line in counted)
