"""The codes of the errors that `gnt-cluster verify` reports: upstream's names, because scripts parse them."""

import enum
from typing import Self


class Subject(enum.StrEnum):
    """What a finding is about."""

    CLUSTER = "cluster"
    GROUP = "group"
    NODE = "node"
    INSTANCE = "instance"


class Severity(enum.StrEnum):
    """How bad a finding is: an error makes the check fail."""

    ERROR = "ERROR"
    WARNING = "WARNING"


class VerifyCode(enum.StrEnum):
    """Every code that a finding can have, with its subject and what it means."""

    subject: Subject
    meaning: str
    severity: Severity
    """How bad it is unless the finding says otherwise."""

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
    ECLUSTERDANGLINGNODES = "ECLUSTERDANGLINGNODES", Subject.NODE, "a node is in no known group"
    ECLUSTERDANGLINGINST = (
        "ECLUSTERDANGLINGINST",
        Subject.NODE,
        "an instance's primary node does not exist",
    )
    EINSTANCEBADNODE = "EINSTANCEBADNODE", Subject.INSTANCE, "a node of the instance cannot be used"
    EINSTANCEDOWN = "EINSTANCEDOWN", Subject.INSTANCE, "should run, and does not"
    EINSTANCELAYOUT = "EINSTANCELAYOUT", Subject.INSTANCE, "its disks and nodes do not fit together"
    EINSTANCEMISSINGDISK = "EINSTANCEMISSINGDISK", Subject.INSTANCE, "a disk is missing"
    EINSTANCEFAULTYDISK = "EINSTANCEFAULTYDISK", Subject.INSTANCE, "a disk is damaged"
    EINSTANCEWRONGNODE = "EINSTANCEWRONGNODE", Subject.INSTANCE, "runs where it should not"
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
    ENODEDRBD = "ENODEDRBD", Subject.NODE, "DRBD devices are not as they should be"
    ENODEDRBDVERSION = "ENODEDRBDVERSION", Subject.NODE, "nodes have different versions of DRBD"
    ENODEDRBDHELPER = "ENODEDRBDHELPER", Subject.NODE, "the DRBD helper is not the cluster's"
    ENODEFILECHECK = "ENODEFILECHECK", Subject.NODE, "the node's files are not the cluster's"
    ENODEHOOKS = "ENODEHOOKS", Subject.NODE, "a hook failed"
    ENODEHV = "ENODEHV", Subject.NODE, "a hypervisor does not work"
    ENODELVM = "ENODELVM", Subject.NODE, "LVM is not as it should be"
    ENODEN1 = "ENODEN1", Subject.NODE, "memory does not suffice if a node fails"
    ENODENET = "ENODENET", Subject.NODE, "another node cannot be reached"
    ENODEOS = "ENODEOS", Subject.NODE, "an OS definition is broken, or differs"
    ENODEORPHANINSTANCE = "ENODEORPHANINSTANCE", Subject.NODE, "an unknown instance runs"
    ENODEORPHANLV = (
        "ENODEORPHANLV",
        Subject.NODE,
        "there is a disk that belongs to no instance",
        Severity.WARNING,
    )
    ENODERPC = "ENODERPC", Subject.NODE, "the node daemon does not answer"
    ENODESSH = "ENODESSH", Subject.NODE, "ssh does not work"
    ENODEVERSION = "ENODEVERSION", Subject.NODE, "the software has another version"
    ENODESETUP = "ENODESETUP", Subject.NODE, "the node is not set up as it should be"
    ENODETIME = "ENODETIME", Subject.NODE, "the clock is wrong"
    ENODEOOBPATH = "ENODEOOBPATH", Subject.NODE, "the out-of-band program cannot be used"
    ENODEUSERSCRIPTS = "ENODEUSERSCRIPTS", Subject.NODE, "a user's script is missing"
    ENODEFILESTORAGEPATHS = (
        "ENODEFILESTORAGEPATHS",
        Subject.NODE,
        "the allowed directories of disks are not as they should be",
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
