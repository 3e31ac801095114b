"""Options that several commands share."""

from ganeti.cli.command import DEBUG, REASON, option
from ganeti.cli.option import Option
from ganeti.model.operation import Argument

INSTANCES = Argument("names", "names of instances", nargs="*", completion="instance")
NODES = Argument("names", "names of nodes", nargs="*", completion="node")

FORCE = option("-f", "--force", action="store_true", help="skip the confirmation prompt")
VERBOSE = option("-v", "--verbose", action="count", default=0, help="print more output")
ALL_INSTANCES = option("--all", dest="all", action="store_true", help="all instances")

SUBMIT = option(
    "--submit", dest="submit_only", action="store_true", help="print the job id and do not wait"
)
PRINT_JOBID = option(
    "--print-jobid", dest="print_jobid", action="store_true", help="print the job's id first"
)
DRY_RUN = option(
    "--dry-run", dest="dry_run", action="store_true", help="check only, change nothing"
)
PRIORITY = option(
    "--priority",
    choices=("low", "normal", "high"),
    default="normal",
    help="priority of the job: low, normal or high",
)

JOB_OPTIONS: tuple[Option, ...] = (
    SUBMIT,
    PRINT_JOBID,
    DRY_RUN,
    PRIORITY,
    REASON,
    VERBOSE,
    DEBUG,
)
QUERY_JOB_OPTIONS: tuple[Option, ...] = (PRIORITY, REASON, VERBOSE, DEBUG)

NO_HEADERS = option(
    "--no-headers", dest="no_headers", action="store_true", help="omit the headings"
)
SEPARATOR = option("--separator", metavar="TEXT", help="separator of fields; disables padding")
JSON = option(
    "--json",
    dest="is_json",
    action="store_true",
    help="print JSON, as the REST interface does",
)
TABLE_OPTIONS: tuple[Option, ...] = (NO_HEADERS, SEPARATOR, JSON)

LIST_OPTIONS: tuple[Option, ...] = (
    option(
        "-o",
        "--output",
        metavar="FIELDS",
        help="fields to show, separated by commas; '+a,b' adds to the default",
    ),
    *TABLE_OPTIONS,
    option(
        "--units",
        choices=("h", "m", "g", "t"),
        help="unit of sizes: m (MiB), g (GiB), t (TiB) or h (for people; the default without --separator)",
    ),
    option(
        "-F",
        "--filter",
        metavar="FILTER",
        nargs="?",
        const="",
        help='show only rows that match, for example \'status == "running" and pnode == "node1"\'',
    ),
    VERBOSE,
)

FIELD_NAMES = Argument("fields", "names of fields; default: all", nargs="*")
