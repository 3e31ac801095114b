"""Faults that prevent a guest with certain parameters from running on this node."""

import asyncio
import json
import os
import re
from ipaddress import ip_address
from pathlib import Path

from ganeti.base.errors import HostError, HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.hypervisor.kvm import firmware, tpm
from ganeti.hypervisor.kvm.confinement import user_problems
from ganeti.hypervisor.kvm.display import devices_needed, has_spice
from ganeti.hypervisor.kvm.images import IMAGES, image_directory_problem, image_problem
from ganeti.hypervisor.kvm.passwords import password_files, read_password
from ganeti.hypervisor.kvm.pinning import mask_problem
from ganeti.hypervisor.kvm.rules import contradictions
from ganeti.model.params import Params

KEYMAPS = Path("/usr/share/qemu/keymaps")
VHOST_NET = Path("/dev/vhost-net")
_VNC_FILES = ("ca-cert.pem", "server-cert.pem", "server-key.pem")
_SPICE_WANTED = {
    "spice.pem": "a key and its certificate",
    "spice-ca.pem": "the certificate of the authority that signed spice.pem",
}
_NAME = re.compile(r'^name "([^"]+)"(?:.*alias "([^"]+)")?', re.MULTILINE)


async def problems_here(paths: Paths, run: Run, program: str, hvparams: Params) -> list[str]:
    """Return a sentence for each fault; `hvparams` are complete."""
    found = [*contradictions(hvparams), *user_problems(hvparams)]
    found += await asyncio.to_thread(_files, paths, hvparams)
    found += await _known_to_qemu(run, program, hvparams)
    if has_spice(hvparams):
        try:
            await spice_address(run, hvparams)
        except HypervisorError as err:
            found.append(str(err))
    return found


async def machines(run: Run, program: str) -> dict[str, str]:
    """Return names of machine types, each with its present versioned name."""
    text = await _help(run, program, "-machine")
    found = {}
    for line in text.splitlines()[1:]:
        if words := line.split():
            alias = re.search(r"\(alias of ([^)\s]+)\)", line)
            found[words[0]] = alias[1] if alias else words[0]
    return found


async def spice_address(run: Run, hvparams: Params) -> str:
    """Return the address of SPICE: given, or the first one of an interface."""
    bind, version = str(hvparams["spice_bind"]), int(hvparams["spice_ip_version"])
    try:
        return str(ip_address(bind))
    except ValueError:
        pass
    try:
        shown = json.loads((await run(["ip", "-j", "address", "show", "dev", bind])).text)
    except (HostError, json.JSONDecodeError) as err:
        raise HypervisorError(f"spice_bind: this node has no interface {bind}") from err
    family = {4: ("inet",), 6: ("inet6",)}.get(version, ("inet", "inet6"))
    for kind in family:
        for one in shown[0].get("addr_info", []) if shown else []:
            if one.get("family") == kind and one.get("scope") != "link":
                return str(one["local"])
    wanted = f"IPv{version} " if version else ""
    raise HypervisorError(f"spice_bind: interface {bind} of this node has no {wanted}address")


def _files(paths: Paths, hvparams: Params) -> list[str]:
    found = [
        f"{name}: {hvparams[name]} is not a readable file on this node"
        for name in ("kernel_path", "initrd_path")
        if hvparams[name] and not _is_readable_file(Path(str(hvparams[name])))
    ]
    found += [problem for name in IMAGES if (problem := image_problem(name, hvparams))]
    directories = str(hvparams["image_directories"]).split(":")
    found += [text for one in directories if one and (text := image_directory_problem(one))]
    for _, name, path in password_files(hvparams):
        try:
            read_password(paths, name, path)
        except HypervisorError as err:
            found.append(str(err))
    found += _certificates(paths, hvparams)
    found += _places(hvparams)
    if hvparams["firmware"] == "uefi" and not firmware.kinds():
        found.append(firmware.missing())
    if hvparams["tpm"] and (problem := tpm.missing()):
        found.append(problem)
    if problem := mask_problem(str(hvparams["cpu_mask"]), None, os.sched_getaffinity(0)):
        found.append(problem)
    return found


def _certificates(paths: Paths, hvparams: Params) -> list[str]:
    wanted: list[tuple[str, Path]] = []
    found = []
    if hvparams["vnc_bind_address"] and hvparams["vnc_x509_path"]:
        directory = Path(str(hvparams["vnc_x509_path"]))
        wanted += [("vnc_x509_path", directory / name) for name in _VNC_FILES]
    if has_spice(hvparams) and hvparams["spice_use_tls"]:
        found += [
            f"spice_use_tls: {path} does not exist; put {what} into it (PEM, mode 0600) on the master,"
            " and run: gnt-cluster redist-conf"
            for name, what in _SPICE_WANTED.items()
            if not _is_readable_file(path := paths.data / name)
        ]
    return found + [
        f"{name}: {path} is not a readable file on this node"
        for name, path in wanted
        if not _is_readable_file(path)
    ]


def _places(hvparams: Params) -> list[str]:
    """Check directories and users of the host."""
    found = []
    address, memory = str(hvparams["vnc_bind_address"]), str(hvparams["mem_path"])
    for name, path in (("vnc_bind_address", address), ("mem_path", memory)):
        if path.startswith("/") and not Path(path).is_dir():
            found.append(f"{name}: {path} is not a directory of this node")
    if hvparams["vhost_net"] and not VHOST_NET.exists():
        found.append(f"vhost_net: this node has no {VHOST_NET}; load the kernel's module vhost_net")
    keymap = str(hvparams["keymap"])
    if keymap and KEYMAPS.is_dir() and not (KEYMAPS / keymap).is_file():
        found.append(f"keymap: QEMU has no keymap {keymap} on this node")
    return found


async def _known_to_qemu(run: Run, program: str, hvparams: Params) -> list[str]:
    found = []
    machine, cpu = str(hvparams["machine_version"]), str(hvparams["cpu_type"]).partition(",")[0]
    if machine and machine not in await machines(run, program):
        found.append(f"machine_version: {program} has no machine {machine!r:.60}")
    if cpu:
        models = (await _help(run, program, "-cpu")).replace(",", " ").split()
        if cpu not in models:
            found.append(f"cpu_type: {program} has no CPU {cpu!r:.60}")
    needed = devices_needed(hvparams)
    if needed:
        text = await _help(run, program, "-device")
        known = {name for pair in _NAME.findall(text) for name in pair}
        found += [
            f"vga or soundhw: {program} has no {device}; install qemu-system-modules-spice, or"
            " choose another"
            for device in sorted(needed - known)
        ]
    if has_spice(hvparams) and "spice" not in (await _help(run, program, "-audiodev")).split():
        found.append(f"spice_bind: {program} does not support SPICE on this node; use VNC")
    return found


async def _help(run: Run, program: str, option: str) -> str:
    try:
        return (await run([program, option, "help"])).text
    except HostError as err:
        raise HypervisorError(f"the devices of QEMU cannot be queried: {err}") from err


def _is_readable_file(path: Path) -> bool:
    return path.is_file() and os.access(path, os.R_OK)
