"""What a node knows about the user ids of a pool."""

import asyncio
import grp
import os
import pwd
import subprocess

import pytest

from ganeti.base.errors import InputError
from ganeti.node.uids import handlers
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.uids import UidPoolArgs, UidPoolUse


async def ask(*ranges: tuple[int, int]) -> UidPoolUse:
    answer = await handlers()["uid_pool_use"](UidPoolArgs(uid_pool=list(ranges)), Call())
    assert isinstance(answer, UidPoolUse)
    return answer


async def test_free_ids_have_no_conflicts() -> None:
    assert await ask((62900, 62999)) == UidPoolUse(conflicts=[], in_use=[])


@pytest.mark.requirement("S107", "A65")
async def test_ids_of_users_services_and_groups_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def user(name: str, uid: int, shell: str) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", uid, uid, "", "/", shell))

    users = [
        user("anna", 1000, "/bin/bash"),
        user("kvm-pool", 1001, "/usr/sbin/nologin"),
        user("www-data", 33, "/usr/sbin/nologin"),
        user("far", 5000, "/bin/sh"),
    ]
    groups = [grp.struct_group(("staff", "x", 1005, [])), grp.struct_group(("k", "x", 1001, []))]
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    monkeypatch.setattr(grp, "getgrall", lambda: groups)
    assert (await ask((30, 40), (1000, 1010))).conflicts == [
        "user id 1000 belongs to anna",
        "user id 33 belongs to www-data",
        "the group staff has the number 1005, which a guest would get",
    ]


def test_ids_of_processes_are_reported(own_user_ids: range) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can run a process under another user id")
    with subprocess.Popen(["sleep", "60"], user=own_user_ids[3]) as process:
        try:
            assert asyncio.run(ask((own_user_ids[0], own_user_ids[9]))).in_use == [own_user_ids[3]]
        finally:
            process.kill()


@pytest.mark.requirement("A65")
@pytest.mark.parametrize("wrong", [(0, 5), (9, 5), (1, 2**32)])
async def test_what_is_no_pool_is_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(InputError):
        await ask(wrong)
