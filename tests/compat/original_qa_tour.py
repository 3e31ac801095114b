# mypy: ignore-errors
"""The original's own QA, run by Debian's Python; what came of each of its functions, as JSON lines.

Arguments: the directory of its modules, the QA configuration, a file for the results. What QA says is printed.
The configuration has also "additional-fields" of kinds of objects, and functions that are "left-out".
"""

import importlib.util
import json
import sys
import traceback
from pathlib import Path

DIRECTORY, CONFIG, RESULTS = sys.argv[1:4]
sys.path[:0] = [DIRECTORY, str(Path(DIRECTORY).parent)]

from ganeti import constants, pathutils, query  # noqa: E402
from ganeti.rapi.client import UsesRapiClient  # noqa: E402

# What the suite does with logical volumes, it does with files here.
constants.DT_PLAIN = constants.DT_FILE
# The configuration is no file; this one changes with its nodes.
pathutils.CLUSTER_CONF_FILE = f"{pathutils.DATA_DIR}/ssconf_node_list"
# Where the original has them if Debian does not move them.
pathutils.EXPORT_DIR = "/srv/ganeti/export"
from qa import qa_config  # noqa: E402

LVM = {constants.ST_LVM_VG}
by_configuration = qa_config.IsStorageTypeSupported
qa_config.IsStorageTypeSupported = lambda kind: kind in LVM or by_configuration(kind)


def main():
    found = importlib.util.spec_from_file_location("ganeti_qa", Path(DIRECTORY) / "ganeti-qa.py")
    suite = importlib.util.module_from_spec(found)
    found.loader.exec_module(suite)
    for name in json.loads(Path(CONFIG).read_text())["left-out"]:
        module, _, function = name.partition(".")
        setattr(getattr(suite, module), function, lambda *_: None)
    with Path(RESULTS).open("w", buffering=1) as results:
        for name in ("RunTest", "RunTestBlock"):
            setattr(suite, name, noting(getattr(suite, name), results))
        qa_config.Load(CONFIG)
        for kind, names in qa_config.get("additional-fields").items():
            query.ALL_FIELDS[kind].update(dict.fromkeys(names))
        suite.RunQa()
        print(json.dumps(["RunQa", ""]), file=results)


def noting(run, results):
    """Run a function of the suite; go on after a failure, which is noted."""

    def noted(function, *args, **kwargs):
        value, failure = None, ""
        try:
            value = run(function, *args, **kwargs)
        except Exception as err:  # noqa: BLE001 - whatever it is, the next one begins
            traceback.print_exc(file=sys.stdout)
            failure = str(err) or type(err).__name__
        print(json.dumps([function.__name__, failure]), file=results)
        return value

    return noted


UsesRapiClient(main)()
