"""gnt-cluster repair-disk-sizes; gnt-instance modify -t."""

from ganeti.cli.gnt_cluster import table
from ganeti.cli.gnt_instance.table import table as instance_table
from tests.unit.cli.fake_master import FakeMaster, Run


def test_sizes_that_were_wrong_are_shown(master: FakeMaster, run: Run) -> None:
    master.job(result=[["web1", 0, "size", 600]])
    code, out, _err = run(table, "repair-disk-sizes", "web1")
    assert (code, out) == (0, "Instance web1: disk 0: changed size to 600 MiB\n")
    (ops, *_key) = master.args_of("SubmitJob")
    assert (ops[0]["OP_ID"], ops[0]["instances"]) == ("OP_CLUSTER_REPAIR_DISK_SIZES", ["web1"])


def test_all_correct_sizes_are_reported(master: FakeMaster, run: Run) -> None:
    master.job(result=[])
    assert run(table, "repair-disk-sizes")[1] == "All recorded disk sizes are correct.\n"


def test_another_template_is_asked_for_with_its_second_node(master: FakeMaster, run: Run) -> None:
    master.job(result=[["disk_template", "drbd"]])
    words = ["-t", "drbd", "-n", "node2", "-e", "vg=fast", "web1"]
    code, out, _err = run(instance_table, "modify", *words)
    assert code == 0
    assert " - disk_template -> drbd" in out
    (ops, *_key) = master.args_of("SubmitJob")
    op = ops[0]
    assert (op["disk_template"], op["remote_node"], op["ext_params"]) == (
        "drbd",
        "node2",
        {"vg": "fast"},
    )
