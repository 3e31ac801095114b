"""msgspec without what a short command does not need."""

import subprocess
import sys

PROGRAM = """
import sys
from ganeti.base.structs import msgspec
assert {"typing_extensions", "inspect"}.isdisjoint(sys.modules), "imported"
import typing
class Sample(msgspec.Struct):
    number: typing.Annotated[int, msgspec.Meta(ge=1)]
assert msgspec.json.decode(b'{"number":1}', type=Sample).number == 1
import typing_extensions
"""


def test_msgspec_decodes_without_typing_extensions_which_others_can_import_later() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0
