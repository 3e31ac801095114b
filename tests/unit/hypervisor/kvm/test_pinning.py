"""Which CPUs of the host a guest is bound to."""

import os
from collections.abc import Mapping
from typing import Any

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm import pinning
from ganeti.hypervisor.kvm.pinning import cpu_sets, mask_problem, pin

pytestmark = pytest.mark.virtual_time
ONLINE = {0, 1, 2, 3, 8}


class Host:
    """Threads of one QEMU, and what they were bound to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bound: dict[int, set[int]] = {}
        self.fails = False
        self.asked: list[str] = []
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: ONLINE)
        monkeypatch.setattr(os, "sched_setaffinity", self._bind)
        monkeypatch.setattr(pinning, "_threads", lambda pid: [pid, pid + 1])

    def _bind(self, thread: int, cpus: frozenset[int]) -> None:
        if self.fails:
            raise OSError(22, "Invalid argument")
        self.bound[thread] = set(cpus)

    async def __call__(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0
    ) -> Any:
        self.asked.append(command)
        return [{"cpu-index": 1, "thread-id": 71}, {"cpu-index": 0, "thread-id": 70}]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


@pytest.mark.parametrize(
    ("mask", "sets"),
    [
        ("all", [None]),
        ("1", [{1}]),
        ("0-2,8", [{0, 1, 2, 8}]),
        ("all:3:0-1", [None, {3}, {0, 1}]),
    ],
)
def test_a_mask_is_one_set_or_one_for_each_cpu(mask: str, sets: list[Any]) -> None:
    assert cpu_sets(mask) == sets


@pytest.mark.parametrize(
    ("mask", "vcpus", "said"),
    [
        ("0:1", 3, "is for 2 CPUs, but the guest has 3"),
        ("0:1", 1, "is for 2 CPUs, but the guest has 1"),
        ("4-6", 1, "this node has no CPU 4, 5, 6"),
        ("all:7", 2, "this node has no CPU 7"),
    ],
)
def test_a_mask_that_does_not_fit_is_explained(mask: str, vcpus: int, said: str) -> None:
    problem = mask_problem(mask, vcpus, ONLINE)
    assert problem is not None
    assert problem.startswith("cpu_mask: ")
    assert said in problem


@pytest.mark.parametrize(("mask", "vcpus"), [("all", 4), ("0-3,8", 4), ("0:8", 2), ("0:8", None)])
def test_a_mask_that_fits_is_taken(mask: str, vcpus: int | None) -> None:
    assert mask_problem(mask, vcpus, ONLINE) is None


async def test_without_a_mask_nothing_is_bound_and_no_call_is_made(host: Host) -> None:
    await pin(host, 40, "all", 2)
    assert (host.bound, host.asked) == ({}, [])


async def test_one_set_binds_every_thread_of_the_process(host: Host) -> None:
    await pin(host, 40, "0-1", 2)
    assert host.bound == {40: {0, 1}, 41: {0, 1}}


async def test_a_set_for_each_cpu_binds_the_thread_of_that_cpu(host: Host) -> None:
    await pin(host, 40, "3:8", 2)
    assert host.bound == {70: {3}, 71: {8}}


async def test_a_cpu_that_may_run_anywhere_is_not_touched(host: Host) -> None:
    await pin(host, 40, "all:8", 2)
    assert host.bound == {71: {8}}


async def test_cpus_that_the_host_lacks_or_refuses_are_an_error(host: Host) -> None:
    with pytest.raises(HypervisorError, match="no CPU 9"):
        await pin(host, 40, "9", 1)
    host.fails = True
    with pytest.raises(HypervisorError, match="cannot be bound to CPUs 1: Invalid argument"):
        await pin(host, 40, "1", 1)
    assert host.bound == {}
