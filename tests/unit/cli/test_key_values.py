from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import InputError
from ganeti.cli.key_values import (
    backend_params,
    disk_requests,
    key_values,
    name_and_values,
    nic_requests,
    split_words,
)
from ganeti.model.opcodes.base import DiskRequest, NicRequest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1,b=x y", {"a": "1", "b": "x y"}),
        ("a", {"a": True}),
        ("no_a", {"a": False}),
        ("-a", {"a": None}),
        ("no_a=1", {"no_a": "1"}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        (r"a=1\,2,b=3", {"a": "1,2", "b": "3"}),
        (r"a=\\,b", {"a": "\\", "b": True}),
        (r"a=\n", {"a": r"\n"}),
    ],
)
def test_keys_and_values(text: str, expected: dict[str, Any]) -> None:
    assert key_values(text, "x") == expected


@pytest.mark.parametrize("text", ["=1", "a=1,a=2", "a,,b", "no_"])
def test_wrong_ones_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^x: "):
        key_values(text, "x")


@given(st.lists(st.text(alphabet="ab,\\", max_size=5), min_size=1, max_size=4))
def test_escaped_words_come_back(words: list[str]) -> None:
    text = ",".join(word.replace("\\", "\\\\").replace(",", "\\,") for word in words)
    assert split_words(text) == words


def test_a_hypervisor_has_its_parameters_behind_a_colon() -> None:
    assert name_and_values("kvm:kernel_path=/a:b,acpi", "x") == (
        "kvm",
        {"kernel_path": "/a:b", "acpi": True},
    )
    assert name_and_values("fake", "x") == ("fake", {})
    with pytest.raises(InputError):
        name_and_values("acpi=true", "x")


def test_backend_parameters_have_their_types() -> None:
    assert backend_params(["memory=1g,vcpus=2", "auto_balance=no,maxmem=default"]) == {
        "memory": 1024,
        "vcpus": 2,
        "auto_balance": False,
        "maxmem": None,
    }
    with pytest.raises(InputError, match=r"beparams\.vcpus"):
        backend_params(["vcpus=two"])


def test_disks_are_in_the_order_of_their_numbers() -> None:
    assert disk_requests(["1:size=2g,mode=ro", "0:size=512,name=root,spindles=2"]) == [
        DiskRequest(size=512, name="root", params={"spindles": "2"}),
        DiskRequest(size=2048, mode="ro"),
    ]


@pytest.mark.parametrize(
    "texts",
    [
        ["size=1g"],
        ["0:mode=ro"],
        ["0:size=much"],
        ["1:size=1g"],
        ["0:size=1g", "0:size=1g"],
        ["-1:size=1"],
    ],
)
def test_wrong_disks_are_refused(texts: list[str]) -> None:
    with pytest.raises(InputError):
        disk_requests(texts)


def test_interfaces_leave_out_what_is_none() -> None:
    assert nic_requests(["0:mac=aa:00:00:00:00:01,ip=none,mode=routed,link=100"]) == [
        NicRequest(mac="aa:00:00:00:00:01", mode="routed", link="100")
    ]
    assert nic_requests(["0"]) == [NicRequest()]
    with pytest.raises(InputError, match="unknown key"):
        nic_requests(["0:colour=red"])
    with pytest.raises(InputError, match=r"nics\[0\].mac"):
        nic_requests(["0:mac"])


def test_a_disk_without_spindles_names_the_remedy() -> None:
    with pytest.raises(InputError, match="disks: must begin with a number, for example 0:size=64m"):
        disk_requests(["size=64m"])
