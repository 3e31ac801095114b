"""What is declared of each kind of object for the commands that read it."""

import pytest

from ganeti.cli.gnt_backup import EXPORT_KIND
from ganeti.cli.gnt_debug import LOCK_KIND
from ganeti.cli.gnt_filter import FILTER_KIND
from ganeti.cli.gnt_group import GROUP_KIND
from ganeti.cli.gnt_image import IMAGE_KIND
from ganeti.cli.gnt_instance.show import INSTANCE_KIND
from ganeti.cli.gnt_job import JOB_KIND
from ganeti.cli.gnt_network import NETWORK_KIND
from ganeti.cli.gnt_node import NODE_KIND
from ganeti.cli.objects import ObjectKind, described, shown
from ganeti.query.execute import KINDS

ALL = (
    EXPORT_KIND,
    LOCK_KIND,
    FILTER_KIND,
    GROUP_KIND,
    IMAGE_KIND,
    INSTANCE_KIND,
    JOB_KIND,
    NETWORK_KIND,
    NODE_KIND,
)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: str(kind.query))
def test_fields_that_commands_show_are_fields_of_queries(kind: ObjectKind) -> None:
    known = set(KINDS[kind.query].fields)
    assert set(kind.listed) | kind.formats.keys() <= known
    if kind.rows:
        asked = {name for line in kind.info for name in line.fields} | set(kind.more)
        assert asked | set(kind.json) <= known


def test_optional_line_without_a_value_is_left_out() -> None:
    lines = (shown("A", "a"), shown("B", "b", optional=True), shown("C", "a", "c", value=max))
    assert described(lines, {"a": 1, "c": 2}) == [("A", 1), ("C", 2)]
