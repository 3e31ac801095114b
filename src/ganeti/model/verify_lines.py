"""The lines with which the jobs of `gnt-cluster verify` report findings: written and read in one place.

Both forms are upstream's: scripts ask for the one with codes (`--error-codes`).
"""

import re

from ganeti.model.verify_codes import Severity

_LINE = re.compile(
    r"  - (?P<severity>ERROR|WARNING):"
    r"(?:(?P<code>[A-Z][A-Z0-9]*):(?P<kind>\w+):| (?P<plain_kind>\w+) )(?P<name>[^:]*):(?P<text>.*)",
    re.DOTALL,
)


def finding_line(severity: Severity, code: str | None, kind: str, name: str, text: str) -> str:
    """Return the line about one fault of an object, the form with codes if `code` is given."""
    if code:
        return f"  - {severity}:{code}:{kind}:{name}:{text}"
    return f"  - {severity}: {kind} {name}: {text}"


def parsed_finding(line: str) -> dict[str, str | None] | None:
    """Return `severity` (error or warning), `code`, `kind`, `name` and `text`; None for another line of the log.

    `code` is None if the line is in the form without codes.
    """
    if not (match := _LINE.fullmatch(line)):
        return None
    return {
        "severity": match["severity"].lower(),
        "code": match["code"],
        "kind": match["kind"] or match["plain_kind"],
        "name": match["name"],
        "text": match["text"] if match["code"] else match["text"].removeprefix(" "),
    }
