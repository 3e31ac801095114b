# mypy: ignore-errors
"""Every call of Ganeti's own REST client, run by the system's Python; what came of each, as JSON lines.

Arguments: address, port, password, a file that the OS definition may write. It knows nothing of this project.
"""

import json
import sys
import time

from ganeti.rapi import client as rapi

ADDRESS, PORT, PASSWORD, RECORD = sys.argv[1:5]
NODE, OTHER = "node1.vcluster.test", "node2.vcluster.test"
ONE, RENAMED = "tour1.example.com", "tour2.example.com"
CLIENT = rapi.GanetiRapiClient(ADDRESS, int(PORT), username="tour", password=PASSWORD)
LIMIT_S = 60


def step(name, *args, wait=False, **kwargs):
    """Call the client, wait for the job if it is one, print what came of it."""
    said = {"call": name}
    try:
        result = getattr(CLIENT, name)(*args, **kwargs)
        said["result"] = result if len(repr(result)) < 20_000 else repr(result)[:100]
        if wait:
            end = time.time() + LIMIT_S
            while time.time() < end:
                job = CLIENT.GetJobStatus(result)
                if job["status"] in ("success", "error", "canceled"):
                    break
                time.sleep(0.1)
            said["job"], said["opresult"] = job["status"], job["opresult"]
        said["ok"] = True
    except rapi.GanetiApiError as err:
        said["ok"], said["code"], said["error"] = False, err.code, str(err)
        result = None
    print(json.dumps(said, default=str), flush=True)
    return result


def tour():
    for name in (
        "GetVersion",
        "GetFeatures",
        "GetOperatingSystems",
        "GetInfo",
        "GetNodes",
        "GetInstances",
        "GetGroups",
        "GetNetworks",
        "GetJobs",
        "GetClusterTags",
    ):
        step(name)
    for name in ("GetNodes", "GetGroups", "GetJobs", "GetNetworks"):
        step(name, bulk=True)
    step("GetNode", NODE)
    step("GetNodeRole", NODE)
    step("GetNodeTags", NODE)
    step("GetGroup", "default")
    step("GetGroupTags", "default")
    step("AddClusterTags", ["tour"], wait=True)
    step("DeleteClusterTags", ["tour"], wait=True)
    step("AddNodeTags", OTHER, ["tour"], wait=True)
    step("DeleteNodeTags", OTHER, ["tour"], wait=True)
    step("AddGroupTags", "default", ["tour"], wait=True)
    step("DeleteGroupTags", "default", ["tour"], wait=True)
    step("ModifyCluster", candidate_pool_size=10, wait=True)
    step(
        "CreateInstance",
        "create",
        ONE,
        "file",
        [{"size": 1}],
        [],
        os="noop",
        pnode=OTHER,
        beparams={"memory": 16},
        hypervisor="fake",
        start=True,
        no_install=True,
        wait=True,
        name_check=False,
        ip_check=False,
    )
    step("GetInstances")
    step("GetInstances", bulk=True)
    step("GetInstance", ONE)
    step("GetInstanceInfo", ONE, static=True, wait=True)
    step("AddInstanceTags", ONE, ["t1"], wait=True)
    step("GetInstanceTags", ONE)
    step("DeleteInstanceTags", ONE, ["t1"], wait=True)
    step("ModifyInstance", ONE, beparams={"memory": 32}, wait=True)
    step("RebootInstance", ONE, reboot_type="hard", wait=True)
    step("GetInstanceConsole", ONE)
    step("Query", "instance", ["name", "status", "pnode"])
    step("Query", "instance", ["name"], ["=", "name", ONE])
    step("QueryFields", "node")
    step("QueryFields", "node", ["name"])
    step("ShutdownInstance", ONE, wait=True)
    step("GrowInstanceDisk", ONE, 0, 1, wait=True)
    step("DeactivateInstanceDisks", ONE, wait=True)
    step("ActivateInstanceDisks", ONE, ignore_size=True, wait=True)
    step("DeactivateInstanceDisks", ONE, wait=True)
    step("RecreateInstanceDisks", ONE, wait=True)
    step(
        "ReinstallInstance", ONE, os="noop", no_startup=True, osparams={"record": RECORD}, wait=True
    )
    step("StartupInstance", ONE, wait=True)
    step("FailoverInstance", ONE, wait=True)
    step("MigrateInstance", ONE, wait=True)
    step("ReplaceInstanceDisks", ONE, disks=[0], wait=True)
    last = step("ShutdownInstance", ONE)
    step("WaitForJobChange", last, ["status"], None, None)
    step("GetJobStatus", last)
    step("WaitForJobCompletion", last, 1, 60)
    step("CancelJob", last)
    step("RenameInstance", ONE, RENAMED, ip_check=False, name_check=False, wait=True)
    step("PrepareExport", RENAMED, "local")
    step("ExportInstance", RENAMED, "local", NODE)
    step("DeleteInstance", RENAMED, wait=True)
    step("InstancesMultiAlloc", [], wait=True)
    step("CreateGroup", "tourgroup", wait=True)
    step("ModifyGroup", "tourgroup", alloc_policy="last_resort", wait=True)
    step("AssignGroupNodes", "tourgroup", [OTHER], wait=True)
    step("AssignGroupNodes", "default", [OTHER], wait=True)
    step("RenameGroup", "tourgroup", "tourgroup2", wait=True)
    step("DeleteGroup", "tourgroup2", wait=True)
    step("ModifyNode", OTHER, vm_capable=True, wait=True)
    step("SetNodeRole", OTHER, "drained", force=True, wait=True)
    step("EvacuateNode", OTHER, mode="primary-only", accept_old=True, wait=True)
    step("MigrateNode", OTHER, wait=True)
    step("SetNodeRole", OTHER, "regular", force=True, wait=True)
    step("SetNodeRole", OTHER, "master-candidate", force=True, wait=True)
    step("CreateNetwork", "tournet", "10.99.0.0/24", wait=True)
    step("ConnectNetwork", "tournet", "default", "bridged", "br0", wait=True)
    step("GetNetwork", "tournet")
    step("ModifyNetwork", "tournet", gateway="10.99.0.1", wait=True)
    step("AddNetworkTags", "tournet", ["tour"], wait=True)
    step("GetNetworkTags", "tournet")
    step("DeleteNetworkTags", "tournet", ["tour"], wait=True)
    step("DisconnectNetwork", "tournet", "default", wait=True)
    step("DeleteNetwork", "tournet", wait=True)
    step("GetFilters")
    uuid = step("AddFilter", 0, [["jobid", [">", "id", 999999]]], "ACCEPT")
    step("GetFilters", bulk=True)
    step("GetFilter", uuid or "none")
    step("ReplaceFilter", uuid or "none", 1, [["jobid", [">", "id", 999999]]], "ACCEPT")
    step("DeleteFilter", uuid or "none")
    step("GetNodeStorageUnits", OTHER, "file", "name,size")
    step("ModifyNodeStorageUnits", OTHER, "lvm-pv", "/dev/none", allocatable=True)
    step("RepairNodeStorageUnits", OTHER, "lvm-vg", "none")
    step("RedistributeConfig", wait=True)


rapi.pycurl.global_init(rapi.pycurl.GLOBAL_ALL)
tour()
