"""The codes of the errors that `gnt-cluster verify` reports: upstream's names, because scripts parse them."""

import enum
from typing import Self


class Subject(enum.StrEnum):
    """The subject of a finding."""

    CLUSTER = "cluster"
    GROUP = "group"
    NODE = "node"
    INSTANCE = "instance"


class Severity(enum.StrEnum):
    """The severity of a finding: an error makes the check fail."""

    ERROR = "ERROR"
    WARNING = "WARNING"


class VerifyCode(enum.StrEnum):
    """Every code of findings, with its subject and its meaning."""

    subject: Subject
    meaning: str
    severity: Severity
    """The default severity."""

    def __new__(
        cls, code: str, subject: Subject, meaning: str, severity: Severity = Severity.ERROR
    ) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.subject, member.meaning, member.severity = subject, meaning, severity
        return member

    ECLUSTERCFG = "ECLUSTERCFG", Subject.CLUSTER, "the configuration contradicts itself"
    ECLUSTERCERT = "ECLUSTERCERT", Subject.CLUSTER, "a certificate ends, or is not the cluster's"
    ECLUSTERCLIENTCERT = "ECLUSTERCLIENTCERT", Subject.CLUSTER, "a node's own certificate is wrong"
    ECLUSTERFILECHECK = "ECLUSTERFILECHECK", Subject.CLUSTER, "a shared file is missing or differs"
    ECLUSTERDANGLINGNODES = (
        "ECLUSTERDANGLINGNODES",
        Subject.NODE,
        "a node belongs to an unknown group",
    )
    ECLUSTERDANGLINGINST = (
        "ECLUSTERDANGLINGINST",
        Subject.NODE,
        "an instance's primary node does not exist",
    )
    ECLUSTERWEBHOOK = (
        "ECLUSTERWEBHOOK",
        Subject.CLUSTER,
        "a webhook has failed for long",
        Severity.WARNING,
    )
    EINSTANCEBADNODE = "EINSTANCEBADNODE", Subject.INSTANCE, "a node of the instance cannot be used"
    EINSTANCEDOWN = "EINSTANCEDOWN", Subject.INSTANCE, "should run, but does not"
    EINSTANCELAYOUT = "EINSTANCELAYOUT", Subject.INSTANCE, "its disks and nodes do not match"
    EINSTANCEMISSINGDISK = "EINSTANCEMISSINGDISK", Subject.INSTANCE, "a disk is missing"
    EINSTANCEFAULTYDISK = "EINSTANCEFAULTYDISK", Subject.INSTANCE, "a disk is damaged"
    EINSTANCEWRONGNODE = "EINSTANCEWRONGNODE", Subject.INSTANCE, "runs on a wrong node"
    EINSTANCESPLITGROUPS = (
        "EINSTANCESPLITGROUPS",
        Subject.INSTANCE,
        "its nodes are in different groups",
    )
    EINSTANCEPOLICY = (
        "EINSTANCEPOLICY",
        Subject.INSTANCE,
        "is outside the instance policy",
        Severity.WARNING,
    )
    EINSTANCEUNSUITABLENODE = (
        "EINSTANCEUNSUITABLENODE",
        Subject.INSTANCE,
        "its node cannot run it",
    )
    EINSTANCEMISSINGCFGPARAMETER = (
        "EINSTANCEMISSINGCFGPARAMETER",
        Subject.INSTANCE,
        "a parameter is missing",
    )
    EINSTANCEBACKUP = "EINSTANCEBACKUP", Subject.INSTANCE, "its last good backup is too old"
    ENODEDRBD = "ENODEDRBD", Subject.NODE, "DRBD devices have faults"
    ENODEDRBDVERSION = "ENODEDRBDVERSION", Subject.NODE, "nodes have different versions of DRBD"
    ENODEDRBDHELPER = "ENODEDRBDHELPER", Subject.NODE, "the DRBD helper is not the cluster's"
    ENODEFILECHECK = "ENODEFILECHECK", Subject.NODE, "the node's files are not the cluster's"
    ENODEHOOKS = "ENODEHOOKS", Subject.NODE, "a hook failed"
    ENODEHV = "ENODEHV", Subject.NODE, "a hypervisor does not work"
    ENODELVM = "ENODELVM", Subject.NODE, "LVM has faults"
    ENODEN1 = "ENODEN1", Subject.NODE, "memory does not suffice if a node fails"
    ENODENET = "ENODENET", Subject.NODE, "another node cannot be reached"
    ENODEOS = "ENODEOS", Subject.NODE, "an OS definition is broken, or differs"
    ENODEORPHANINSTANCE = "ENODEORPHANINSTANCE", Subject.NODE, "an unknown instance runs"
    ENODEORPHANLV = (
        "ENODEORPHANLV",
        Subject.NODE,
        "a disk belongs to no instance",
        Severity.WARNING,
    )
    ENODERPC = "ENODERPC", Subject.NODE, "the node daemon does not answer"
    ENODESSH = "ENODESSH", Subject.NODE, "ssh does not work"
    ENODEVERSION = "ENODEVERSION", Subject.NODE, "the software has another version"
    ENODESETUP = "ENODESETUP", Subject.NODE, "the setup of the node has faults"
    ENODETIME = "ENODETIME", Subject.NODE, "the clock is wrong"
    ENODEOOBPATH = "ENODEOOBPATH", Subject.NODE, "the out-of-band program cannot be used"
    ENODEFENCE = (
        "ENODEFENCE",
        Subject.NODE,
        "automatic recovery could not switch the node off",
        Severity.WARNING,
    )
    ENODEIMAGE = "ENODEIMAGE", Subject.NODE, "a copy of an image is missing or has changed"
    ENODEUSERSCRIPTS = "ENODEUSERSCRIPTS", Subject.NODE, "a user's script is missing"
    ENODEFILESTORAGEPATHS = (
        "ENODEFILESTORAGEPATHS",
        Subject.NODE,
        "the allowed directories of disks have faults",
    )
    ENODEFILESTORAGEPATHUNUSABLE = (
        "ENODEFILESTORAGEPATHUNUSABLE",
        Subject.NODE,
        "the directory of disks cannot be used",
    )
    ENODESHAREDFILESTORAGEPATHUNUSABLE = (
        "ENODESHAREDFILESTORAGEPATHUNUSABLE",
        Subject.NODE,
        "the shared directory of disks cannot be used",
    )
    ENODEGLUSTERSTORAGEPATHUNUSABLE = (
        "ENODEGLUSTERSTORAGEPATHUNUSABLE",
        Subject.NODE,
        "the Gluster volume cannot be used",
    )
    EEXTAGS = (
        "EEXTAGS",
        Subject.NODE,
        "has instances that exclusion tags keep apart",
        Severity.WARNING,
    )
    EGROUPDIFFERENTPVSIZE = (
        "EGROUPDIFFERENTPVSIZE",
        Subject.GROUP,
        "physical volumes have different sizes",
        Severity.WARNING,
    )
