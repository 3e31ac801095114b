"""Opcodes: everything that can be asked of the master, as data."""

from typing import Any

from ganeti.base.errors import InputError
from ganeti.model import wire
from ganeti.model.opcodes.base import PRIORITY_HIGHEST, PRIORITY_LOWEST, OpCode
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

AnyOpCode = (
    OpClusterActivateMasterIp
    | OpClusterBalance
    | OpClusterCapacity
    | OpClusterDeactivateMasterIp
    | OpClusterDestroy
    | OpClusterPostInit
    | OpClusterQuery
    | OpClusterRedistConf
    | OpClusterSetParams
    | OpClusterVerify
    | OpClusterVerifyConfig
    | OpClusterVerifyGroup
    | OpGroupAdd
    | OpGroupAssignNodes
    | OpGroupEvacuate
    | OpGroupRemove
    | OpGroupRename
    | OpGroupSetParams
    | OpInstanceActivateDisks
    | OpInstanceChangeGroup
    | OpInstanceConsole
    | OpInstanceCreate
    | OpInstanceDeactivateDisks
    | OpInstanceFailover
    | OpInstanceGrowDisk
    | OpInstanceMigrate
    | OpInstanceMove
    | OpInstanceMultiAlloc
    | OpInstanceQueryData
    | OpInstanceReboot
    | OpInstanceRecreateDisks
    | OpInstanceReinstall
    | OpInstanceRemove
    | OpInstanceRename
    | OpInstanceSetParams
    | OpInstanceShutdown
    | OpInstanceStartup
    | OpNodeAdd
    | OpNodeEvacuate
    | OpNodeMigrate
    | OpNodePowercycle
    | OpNodeRemove
    | OpNodeRename
    | OpNodeSetParams
    | OpOsDiagnose
    | OpTagsDel
    | OpTagsGet
    | OpTagsSearch
    | OpTagsSet
    | OpTestAllocator
    | OpTestDelay
)
"""Every opcode that can be submitted."""

OPCODES: dict[str, type[OpCode]] = {kind.op_id(): kind for kind in AnyOpCode.__args__}


def parse_opcode(value: Any, *, what: str = "opcode") -> OpCode:
    """The opcode that plain values describe; InputError names what is wrong with them.

    Unknown opcodes, unknown fields and wrong types are refused (A22).
    """
    op: OpCode = wire.convert(value, AnyOpCode, what=what)
    if not PRIORITY_HIGHEST <= op.priority <= PRIORITY_LOWEST:
        raise InputError(
            f"must be from {PRIORITY_HIGHEST} to {PRIORITY_LOWEST}", f"{what}.priority"
        )
    return op


__all__ = ["OPCODES", "AnyOpCode", "OpCode", "parse_opcode"]
