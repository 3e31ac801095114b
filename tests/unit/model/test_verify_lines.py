"""Findings as lines of a job's log."""

import pytest

from ganeti.model.verify_codes import Severity
from ganeti.model.verify_lines import finding_line, parsed_finding


@pytest.mark.parametrize("severity", Severity)
@pytest.mark.parametrize("code", [None, "ENODELVM", "ENODEN1"])
@pytest.mark.parametrize("name", ["", "node1.example.com"])
@pytest.mark.parametrize(
    "text", ["", "no group", "port 1811: refused\nby node:2", " ERROR:x:y:z:t"]
)
def test_each_finding_is_read_as_it_was_written(
    severity: Severity, code: str | None, name: str, text: str
) -> None:
    assert parsed_finding(finding_line(severity, code, "node", name, text)) == {
        "severity": severity.lower(),
        "code": code,
        "kind": "node",
        "name": name,
        "text": text,
    }


@pytest.mark.parametrize(
    "line", ["", "* Verifying certificates", "  - INFO: node n1: well", "ERROR: node n1: x"]
)
def test_other_lines_are_no_findings(line: str) -> None:
    assert parsed_finding(line) is None
