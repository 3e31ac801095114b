"""Procedures about mastership: the register, candidates, the cluster's address."""

import msgspec

from ganeti.model.objects import Cluster
from ganeti.rpc.procedures.form import NORMAL_S, QUICK_S, Message, Nothing, Procedure
from ganeti.store.election import FORMER_SILENCE_S, Vote
from ganeti.store.interface import CampaignKind
from ganeti.store.register import AcceptRequest, PromiseRequest


class PromiseArgs(Message, frozen=True, kw_only=True):
    """A candidate asks for an epoch."""

    request: PromiseRequest
    kind: CampaignKind = CampaignKind.VOTE


class AcceptArgs(Message, frozen=True, kw_only=True):
    """A master's registration of itself."""

    request: AcceptRequest


class RenewArgs(Message, frozen=True, kw_only=True):
    """The master's confirmation that it is still the master."""

    cluster_uuid: str
    epoch: int
    master_uuid: str
    silence_s: float = FORMER_SILENCE_S
    """After how many seconds without a renewal another master may be elected."""


class RegisterAnswer(Message, frozen=True, kw_only=True):
    """Answer of a node to any call about its register (R8)."""

    vote: Vote | None = None
    """None if the node has not joined a cluster. Only answers to read and promise report the node's role."""
    why: str = ""
    """The reason why the node has no vote."""
    protocol: int = 0


class CandidateArgs(Message, frozen=True, kw_only=True):
    """Become a master candidate.

    The keys of the cluster's authority (PEM) and of confd, and the state's location.
    """

    authority_key: str
    state: str = ""
    """The location (`StateSettings` as JSON); '' where the candidates themselves have the state."""
    server: str = msgspec.field(default="", name="etcd_server")
    """The settings of the candidate's own server of the state, if it is to run one."""
    confd_key: bytes = b""
    """The key that signs confd's datagrams."""
    former_confd_key: bytes = b""
    """The second valid key while the key is renewed."""

    def __repr__(self) -> str:
        return "CandidateArgs(…)"


class CandidateReport(Message, frozen=True, kw_only=True):
    """A report of a candidate's own server of the state."""

    has_data: bool
    free_bytes: int
    """Free space of the file system with its data."""


class MasterIpArgs(Message, frozen=True, kw_only=True):
    """The cluster's own address; nothing is done without `netdev`."""

    address: str
    netmask: int
    netdev: str
    by_script: bool = False
    """The administrator's script configures it instead of the node."""


def master_ip_args(cluster: Cluster) -> MasterIpArgs:
    """Return the address in the form that a node needs."""
    return MasterIpArgs(
        address=cluster.master_ip,
        netmask=cluster.master_netmask,
        netdev=cluster.master_netdev,
        by_script=cluster.use_external_mip_script,
    )


REGISTER_READ = Procedure("register_read", Nothing, RegisterAnswer, QUICK_S, changes=False)

REGISTER_PROMISE = Procedure(
    "register_promise", PromiseArgs, RegisterAnswer, QUICK_S, changes=False
)

REGISTER_ACCEPT = Procedure("register_accept", AcceptArgs, RegisterAnswer, QUICK_S, changes=False)

REGISTER_RENEW = Procedure("register_renew", RenewArgs, RegisterAnswer, QUICK_S, changes=False)

CANDIDATE_START = Procedure("candidate_start", CandidateArgs, Nothing, NORMAL_S, changes=True)

CANDIDATE_READ = Procedure("candidate_read", Nothing, CandidateReport, QUICK_S, changes=False)

CANDIDATE_STOP = Procedure("candidate_stop", Nothing, Nothing, NORMAL_S, changes=True)

MASTER_IP_UP = Procedure("master_ip_up", MasterIpArgs, Nothing, NORMAL_S, changes=True)

MASTER_IP_DOWN = Procedure("master_ip_down", MasterIpArgs, Nothing, NORMAL_S, changes=True)

REST_UP = Procedure("rest_up", Nothing, Nothing, NORMAL_S, changes=True)
"""Keep the REST server of the master's node running."""
