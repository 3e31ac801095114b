"""Which logical unit runs which opcode."""

from typing import Any

from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.cluster import (
    OpClusterActivateMasterIp,
    OpClusterDeactivateMasterIp,
    OpClusterDestroy,
    OpClusterPostInit,
    OpClusterQuery,
    OpClusterRedistConf,
    OpClusterSetParams,
    OpClusterVerify,
    OpClusterVerifyConfig,
    OpClusterVerifyGroup,
)
from ganeti.model.opcodes.group import (
    OpGroupAdd,
    OpGroupAssignNodes,
    OpGroupEvacuate,
    OpGroupRemove,
    OpGroupRename,
    OpGroupSetParams,
    OpInstanceChangeGroup,
)
from ganeti.model.opcodes.instance import (
    OpInstanceConsole,
    OpInstanceCreate,
    OpInstanceMigrate,
    OpInstanceQueryData,
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.model.opcodes.instance_changes import (
    OpInstanceActivateDisks,
    OpInstanceDeactivateDisks,
    OpInstanceGrowDisk,
    OpInstanceRecreateDisks,
    OpInstanceSetParams,
)
from ganeti.model.opcodes.instance_system import OpInstanceReinstall, OpInstanceRename
from ganeti.model.opcodes.moving import (
    OpInstanceFailover,
    OpInstanceMove,
    OpNodeEvacuate,
    OpNodeMigrate,
)
from ganeti.model.opcodes.node import (
    OpNodeAdd,
    OpNodePowercycle,
    OpNodeRemove,
    OpNodeRename,
    OpNodeSetParams,
)
from ganeti.model.opcodes.os import OpOsDiagnose
from ganeti.model.opcodes.placing import OpClusterBalance, OpClusterCapacity, OpInstanceMultiAlloc
from ganeti.model.opcodes.tags import OpTagsDel, OpTagsGet, OpTagsSearch, OpTagsSet
from ganeti.model.opcodes.test import OpTestAllocator, OpTestDelay
from ganeti.units.base import LogicalUnit
from ganeti.units.cluster.balance import LUClusterBalance, LUClusterCapacity
from ganeti.units.cluster.lifecycle import LUClusterDestroy, LUClusterPostInit, LUClusterQuery
from ganeti.units.cluster.master_ip import LUClusterActivateMasterIp, LUClusterDeactivateMasterIp
from ganeti.units.cluster.modify import LUClusterSetParams
from ganeti.units.cluster.redistribute import LUClusterRedistConf
from ganeti.units.cluster.verify import LUClusterVerify, LUClusterVerifyConfig, LUClusterVerifyGroup
from ganeti.units.group.assign import LUGroupAssignNodes
from ganeti.units.group.evacuate import LUGroupEvacuate
from ganeti.units.group.modify import LUGroupAdd, LUGroupRemove, LUGroupRename, LUGroupSetParams
from ganeti.units.instance.activate_disks import LUInstanceActivateDisks, LUInstanceDeactivateDisks
from ganeti.units.instance.change_group import LUInstanceChangeGroup
from ganeti.units.instance.create import LUInstanceCreate
from ganeti.units.instance.failover import LUInstanceFailover
from ganeti.units.instance.grow_disk import LUInstanceGrowDisk
from ganeti.units.instance.migrate import LUInstanceMigrate
from ganeti.units.instance.modify import LUInstanceSetParams
from ganeti.units.instance.move import LUInstanceMove
from ganeti.units.instance.multi_alloc import LUInstanceMultiAlloc
from ganeti.units.instance.power import LUInstanceReboot, LUInstanceShutdown, LUInstanceStartup
from ganeti.units.instance.query_data import LUInstanceConsole, LUInstanceQueryData
from ganeti.units.instance.recreate_disks import LUInstanceRecreateDisks
from ganeti.units.instance.reinstall import LUInstanceReinstall
from ganeti.units.instance.remove import LUInstanceRemove
from ganeti.units.instance.rename import LUInstanceRename
from ganeti.units.node.add import LUNodeAdd
from ganeti.units.node.evacuate import LUNodeEvacuate, LUNodeMigrate
from ganeti.units.node.modify import LUNodeSetParams
from ganeti.units.node.powercycle import LUNodePowercycle
from ganeti.units.node.remove import LUNodeRemove
from ganeti.units.node.rename import LUNodeRename
from ganeti.units.os.diagnose import LUOsDiagnose
from ganeti.units.tags.change import LUTagsDel, LUTagsGet, LUTagsSearch, LUTagsSet
from ganeti.units.test.allocator import LUTestAllocator
from ganeti.units.test.delay import LUTestDelay

UNITS: dict[type[OpCode], type[LogicalUnit[Any, Any]]] = {
    OpClusterActivateMasterIp: LUClusterActivateMasterIp,
    OpClusterBalance: LUClusterBalance,
    OpClusterCapacity: LUClusterCapacity,
    OpClusterDeactivateMasterIp: LUClusterDeactivateMasterIp,
    OpClusterDestroy: LUClusterDestroy,
    OpClusterPostInit: LUClusterPostInit,
    OpClusterQuery: LUClusterQuery,
    OpClusterRedistConf: LUClusterRedistConf,
    OpClusterSetParams: LUClusterSetParams,
    OpClusterVerify: LUClusterVerify,
    OpClusterVerifyConfig: LUClusterVerifyConfig,
    OpClusterVerifyGroup: LUClusterVerifyGroup,
    OpGroupAdd: LUGroupAdd,
    OpGroupAssignNodes: LUGroupAssignNodes,
    OpGroupEvacuate: LUGroupEvacuate,
    OpGroupRemove: LUGroupRemove,
    OpGroupRename: LUGroupRename,
    OpGroupSetParams: LUGroupSetParams,
    OpInstanceActivateDisks: LUInstanceActivateDisks,
    OpInstanceChangeGroup: LUInstanceChangeGroup,
    OpInstanceConsole: LUInstanceConsole,
    OpInstanceCreate: LUInstanceCreate,
    OpInstanceDeactivateDisks: LUInstanceDeactivateDisks,
    OpInstanceFailover: LUInstanceFailover,
    OpInstanceGrowDisk: LUInstanceGrowDisk,
    OpInstanceMigrate: LUInstanceMigrate,
    OpInstanceMove: LUInstanceMove,
    OpInstanceMultiAlloc: LUInstanceMultiAlloc,
    OpInstanceQueryData: LUInstanceQueryData,
    OpInstanceReboot: LUInstanceReboot,
    OpInstanceRecreateDisks: LUInstanceRecreateDisks,
    OpInstanceReinstall: LUInstanceReinstall,
    OpInstanceRemove: LUInstanceRemove,
    OpInstanceRename: LUInstanceRename,
    OpInstanceSetParams: LUInstanceSetParams,
    OpInstanceShutdown: LUInstanceShutdown,
    OpInstanceStartup: LUInstanceStartup,
    OpNodeAdd: LUNodeAdd,
    OpNodeEvacuate: LUNodeEvacuate,
    OpNodeMigrate: LUNodeMigrate,
    OpNodePowercycle: LUNodePowercycle,
    OpNodeRemove: LUNodeRemove,
    OpNodeRename: LUNodeRename,
    OpNodeSetParams: LUNodeSetParams,
    OpOsDiagnose: LUOsDiagnose,
    OpTagsDel: LUTagsDel,
    OpTagsGet: LUTagsGet,
    OpTagsSearch: LUTagsSearch,
    OpTagsSet: LUTagsSet,
    OpTestAllocator: LUTestAllocator,
    OpTestDelay: LUTestDelay,
}
