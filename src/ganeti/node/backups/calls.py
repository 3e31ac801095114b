"""Answers calls about backups. Long work is done by a program of the node (`program.py`)."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import GanetiError
from ganeti.base.identifiers import host_name
from ganeti.base.paths import Paths
from ganeti.model import wire
from ganeti.node.backups import program
from ganeti.node.backups.directory import (
    BackupDirectory,
    allowed_targets,
    entered,
    path_of,
)
from ganeti.node.backups.key_pipe import VARIABLE, packed
from ganeti.node.backups.proofs import read_proof
from ganeti.node.program_reports import reported
from ganeti.node.tasks import Tasks
from ganeti.protocols.backup_manifest import Image, Manifest, check_point, image_file
from ganeti.protocols.backup_proof import judged
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.backups import (
    BACKUP_ABANDON,
    BACKUP_BEGIN,
    BACKUP_CHECK,
    BACKUP_COMMIT,
    BACKUP_INFO,
    BACKUP_LIST,
    BACKUP_PRUNE,
    BackupBegun,
    BackupListing,
    BackupsOf,
    CommitPoint,
    NewPoint,
    PointCheck,
    PointContent,
    PointDisk,
    PointInfo,
    PointOf,
    PrunePoints,
    TargetInfo,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.storage.confinement import AllowedDirectories, DirectoryMissing

MIB = 1024 * 1024


def handlers(paths: Paths, tasks: Tasks) -> Handlers:
    """Return the handlers of all calls about backups."""
    calls = _Backups(paths, tasks)
    return {
        BACKUP_LIST.name: calls.listing,
        BACKUP_BEGIN.name: calls.begin,
        BACKUP_COMMIT.name: calls.commit,
        BACKUP_ABANDON.name: calls.abandon,
        BACKUP_INFO.name: calls.info,
        BACKUP_PRUNE.name: calls.prune,
        BACKUP_CHECK.name: calls.check,
    }


@dataclass(frozen=True)
class _Backups:
    paths: Paths
    tasks: Tasks

    async def listing(self, _args: Nothing, _call: Call) -> BackupListing:
        return await asyncio.to_thread(self._list)

    def _list(self) -> BackupListing:
        allowed = allowed_targets(self.paths)
        targets, points = list[TargetInfo](), list[PointInfo]()
        for target in allowed.entries:
            try:
                points += self._points_in(allowed, target)
                targets.append(TargetInfo(target=target, free=_free(allowed, target)))
            except DirectoryMissing:
                continue
            except (GanetiError, OSError) as err:
                targets.append(TargetInfo(target=target, problem=str(err)))
        return BackupListing(targets=targets, points=points)

    def _points_in(self, allowed: AllowedDirectories, target: str) -> Iterator[PointInfo]:
        for name in allowed.directories(target):
            with contextlib.suppress(GanetiError):
                host_name(name, "name")
                with entered(self.paths, target, name) as directory:
                    yield from _infos(target, name, directory)

    async def begin(self, args: BackupsOf, _call: Call) -> BackupBegun:
        return await asyncio.to_thread(self._begin, args)

    def _begin(self, args: BackupsOf) -> BackupBegun:
        with self._entered(args, make=True) as directory, directory.locked():
            contents = directory.settle()
        free = _free(allowed_targets(self.paths), args.target)
        last = contents.last
        return BackupBegun(
            last=_info(args.target, last) if last else None, free=free, encrypts=True
        )

    async def commit(self, args: CommitPoint, _call: Call) -> PointInfo:
        return await asyncio.to_thread(self._commit, args)

    def _commit(self, args: CommitPoint) -> PointInfo:
        images = tuple(
            Image(disk=disk, size=0, file=image_file(args.point, disk), length=0, pieces=())
            for disk in args.disks
        )
        manifest = Manifest(
            instance=args.instance_name,
            instance_uuid=args.instance_uuid,
            point=args.point,
            number=0,
            time=args.time,
            parent=args.parent,
            consistency=args.consistency,
            disks=images,
            description=args.description,
            schedule=args.schedule,
        )
        with self._entered(args) as directory, directory.locked():
            return _info(args.target, directory.commit(manifest))

    async def abandon(self, args: NewPoint, _call: Call) -> Nothing:
        await asyncio.to_thread(self._abandon, args)
        return Nothing()

    def _abandon(self, args: NewPoint) -> None:
        files = [image_file(args.point, disk) for disk in args.disks]
        with contextlib.suppress(DirectoryMissing), self._entered(args) as directory:
            directory.abandon(files)

    async def info(self, args: PointOf, _call: Call) -> PointContent:
        return await asyncio.to_thread(self._describe, args)

    def _describe(self, args: PointOf) -> PointContent:
        with self._entered(args) as directory:
            found = directory.contents().find(check_point(args.point))
        description = args.keys.keyring.description(found)
        return PointContent(description=description, info=_info(args.target, found))

    async def prune(self, args: PrunePoints, call: Call) -> Nothing:
        names = [check_point(name) for name in args.points]
        await self._run("prune", args, names, call)
        return Nothing()

    async def check(self, args: BackupsOf, call: Call) -> list[PointCheck]:
        said = await self._run("check", args, [], call)
        return wire.decode(said, list[PointCheck], what="the result of a check")

    async def _run(self, action: str, args: BackupsOf, names: list[str], call: Call) -> str:
        with self._entered(args):
            directory = path_of(self.paths, args.target, args.instance_name)
        argv = [sys.executable, "-m", program.__name__, action, str(directory)]
        secret = (VARIABLE, packed(args.keys))
        return await reported(self.paths, self.tasks, call, argv, names, secret=secret)

    @contextlib.contextmanager
    def _entered(self, args: BackupsOf, *, make: bool = False) -> Iterator[BackupDirectory]:
        host_name(args.instance_name, "instance_name")
        with entered(
            self.paths, args.target, args.instance_name, make=make, keys=args.keys.keyring
        ) as directory:
            yield directory


def _free(allowed: AllowedDirectories, target: str) -> int:
    space: os.statvfs_result = allowed.free_space(target)
    return space.f_bavail * space.f_frsize // MIB


def _infos(target: str, instance: str, directory: BackupDirectory) -> Iterator[PointInfo]:
    contents = directory.contents()
    for point in contents.points.values():
        yield replace(_info(target, point), proof=judged(read_proof(directory, point), point))
    for name, problem in contents.problems.items():
        yield PointInfo(target=target, instance=instance, point=name, problem=problem)


def _info(target: str, point: Manifest) -> PointInfo:
    return PointInfo(
        target=target,
        instance=point.instance,
        point=point.point,
        instance_uuid=point.instance_uuid,
        time=point.time,
        parent=point.parent,
        consistency=point.consistency,
        stored=sum(one.length for one in point.disks),
        disks=[PointDisk(disk=one.disk, size=one.size) for one in point.disks],
        schedule=point.schedule,
        key_id=point.key_id,
    )
