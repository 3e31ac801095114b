"""Procedures about who is master: the register, candidates, the cluster's address."""

from ganeti.rpc.procedures.form import NORMAL_S, QUICK_S, Message, Nothing, Procedure


class PromiseArgs(Message, frozen=True, kw_only=True):
    cluster_uuid: str
    epoch: int
    candidate_uuid: str
    kind: str = "vote"
    """`vote`, `hand-over` or `force` (R8, R10)."""


class RenewArgs(Message, frozen=True, kw_only=True):
    """The master says that it is the master still."""

    cluster_uuid: str
    epoch: int
    master_uuid: str


class RegisterState(Message, frozen=True, kw_only=True):
    """The node's register (architecture.md, section 5); `granted` answers the request that asked."""

    granted: bool
    why: str
    cluster_uuid: str
    promised_epoch: int
    promised_to: str
    accepted_epoch: int
    accepted_version: int
    accepted_master: str
    sync_set: list[str]
    job_id_ceiling: int
    voters: list[str] = []
    heard_master: str = ""
    """The master that this node heard last, and how many seconds ago; -1 if none since it started."""
    heard_s: float = -1.0
    software: str = ""
    older_calls: list[str] = []
    """Changing calls and tasks of masters before the promised epoch that still run here (R8, R11)."""
    protocol: int = 0
    accepted_software: str = ""
    role: str = ""
    """`master`, `candidate`, `regular` or `offline`, as far as this node knows; '' in a short answer."""
    master_capable: bool = False
    """Whether this node has what a master needs: the key, the state, and its name in the list."""
    position: int = -1
    """Where the state on this node ends; -1 if it holds none."""
    digest: str = ""
    """Of the whole history up to there, hexadecimal."""
    last_job_id: int = 0
    """The greatest job id in the state on this node."""


class AcceptArgs(Message, frozen=True, kw_only=True):
    cluster_uuid: str
    epoch: int
    version: int
    master_uuid: str
    sync_set: list[str]
    job_id_ceiling: int
    voters: list[str] = []
    software: str = ""


class CandidateArgs(Message, frozen=True, kw_only=True):
    """Become a master candidate: the key of the cluster's authority (PEM), and where the state is."""

    authority_key: str
    state: str = ""
    """Where it is (`StateSettings` as JSON); '' where the candidates themselves have it."""
    etcd_server: str = ""
    """The settings of the candidate's own server of etcd, where it is to run one."""

    def __repr__(self) -> str:
        return "CandidateArgs(…)"


class MasterIpArgs(Message, frozen=True, kw_only=True):
    """The cluster's own address; nothing is done without `netdev`."""

    address: str
    netmask: int
    netdev: str


REGISTER_READ = Procedure("register_read", Nothing, RegisterState, QUICK_S, changes=False)

REGISTER_PROMISE = Procedure("register_promise", PromiseArgs, RegisterState, QUICK_S, changes=False)

REGISTER_ACCEPT = Procedure("register_accept", AcceptArgs, RegisterState, QUICK_S, changes=False)

REGISTER_RENEW = Procedure("register_renew", RenewArgs, RegisterState, QUICK_S, changes=False)

CANDIDATE_START = Procedure("candidate_start", CandidateArgs, Nothing, NORMAL_S, changes=True)

CANDIDATE_STOP = Procedure("candidate_stop", Nothing, Nothing, NORMAL_S, changes=True)

MASTER_IP_UP = Procedure("master_ip_up", MasterIpArgs, Nothing, NORMAL_S, changes=True)

MASTER_IP_DOWN = Procedure("master_ip_down", MasterIpArgs, Nothing, NORMAL_S, changes=True)
