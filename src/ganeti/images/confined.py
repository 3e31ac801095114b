"""The confinement of a program that reads an untrusted file.

`python -m ganeti.images.confined UID MEMORY FILE-SIZE SECONDS COUNT DEVICE PROGRAM ...` starts PROGRAM in the present
directory: as a user of its own (if the caller is root), without capabilities, network, other users' files, and with
limits; COUNT is that of threads and of open files. It may use one device, or none (''). It ends with its caller.
Three barriers, each of which would suffice for most attacks: the user, a filter of system calls, and Landlock, which
allows only its own directory and, for reading, programs and libraries. This module imports little, because its
imports are part of the confined process.
"""

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Sequence
from typing import NoReturn

_READABLE = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/proc/self", "/dev/urandom")
_WRITABLE = (".", "/dev/null")
_NEWNET, _NEWIPC = 0x40000000, 0x08000000
_PR_SET_PDEATHSIG, _KILL_SIGNAL = 1, 9
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_FILTER = 38, 22, 2
_NEW_NAMESPACES = 0x7E020080

# Calls by their numbers; `clone` may make threads, but no namespace; the arguments of `clone3` cannot be filtered.
_TABLES = {
    "x86_64": (
        0xC000003E,
        (
            *(41, 42, 43, 44, 46, 49, 50, 53, 288, 307),  # sockets
            *(
                101,
                310,
                311,
                304,
                135,
                248,
                249,
                250,
                298,
                321,
                323,
                425,
            ),  # other processes, keys, bpf, io_uring
            *(
                161,
                155,
                165,
                166,
                167,
                169,
                175,
                176,
                246,
                272,
                308,
                313,
                320,
                428,
                429,
                430,
                431,
                442,
            ),  # the system
            *(86, 88, 133, 265, 266, 259),  # links and devices
        ),
        56,
        435,
    ),
    "aarch64": (
        0xC00000B7,
        (
            *(198, 199, 200, 201, 202, 203, 206, 211, 242, 269),
            *(117, 270, 271, 265, 92, 217, 218, 219, 241, 280, 282, 425),
            *(51, 41, 40, 39, 224, 142, 105, 106, 104, 97, 268, 273, 294, 428, 429, 430, 431, 442),
            *(37, 36, 33),
        ),
        220,
        435,
    ),
}
_X32 = 0x40000000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_OF_NUMBER, _OF_ARCHITECTURE, _OF_FIRST_ARGUMENT = 0, 4, 16

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_BENEATH = 1
_READ_RIGHTS = 1 << 0 | 1 << 2 | 1 << 3  # execute, read files, list directories
_WRITE_RIGHTS = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 8 | 1 << 14
_DEVICE_RIGHTS = 1 << 1 | 1 << 2
_FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14
_RIGHTS_OF = {1: 0x1FFF, 2: 0x3FFF}
_RIGHTS_SINCE_3 = 0x7FFF


def main(words: Sequence[str]) -> NoReturn:
    """Drop all privileges and become the program."""
    uid, memory, file_size, seconds, count = (int(word) for word in words[:5])
    device, *argv = words[5:]
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        _must(libc.unshare(_NEWNET | _NEWIPC), "unshare")
        group = os.stat(device).st_gid if device else 0  # noqa: PTH116 - few imports
        os.setgroups([group] if group else [])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    for what, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, count),
        *([(resource.RLIMIT_NPROC, count)] if uid else []),
    ):
        resource.setrlimit(what, (limit, limit))
    os.umask(0o077)
    _must(libc.prctl(_PR_SET_PDEATHSIG, _KILL_SIGNAL, 0, 0, 0), "prctl")
    _must(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    _landlock(libc, device)
    _filter(libc)
    os.execv(argv[0], argv)  # noqa: S606 - a program of this package, by its path


def _must(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _landlock(libc: ctypes.CDLL, device: str) -> None:
    """Apply Landlock if the kernel has it; the user and the filter apply in any case."""
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    rights = _RIGHTS_OF.get(version, _RIGHTS_SINCE_3)
    attributes = struct.pack("<Q", rights)
    rules = _must(
        libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0), "landlock"
    )
    for path, allowed in (
        *((path, _READ_RIGHTS) for path in _READABLE),
        *((path, _WRITE_RIGHTS) for path in _WRITABLE),
        *([(device, _DEVICE_RIGHTS)] if device else []),
    ):
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        mask = rights if os.path.isdir(path) else _FILE_RIGHTS & rights  # noqa: PTH112 - few imports
        rule = struct.pack("<Qi", allowed & mask, descriptor)
        _must(libc.syscall(_ADD_RULE, rules, _BENEATH, rule, 0), "landlock")
        os.close(descriptor)
    _must(libc.syscall(_RESTRICT_SELF, rules, 0), "landlock")
    os.close(rules)


def _filter(libc: ctypes.CDLL) -> None:
    """Refuse system calls that are not needed to read one file and write another."""
    machine = platform.machine()
    if machine not in _TABLES:
        raise OSError(errno.ENOSYS, f"the filter of system calls does not support {machine}")
    program = filter_program(*_TABLES[machine])
    buffer = ctypes.create_string_buffer(program, len(program))
    given = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _must(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, given, 0, 0), "seccomp")


def filter_program(architecture: int, refused: Sequence[int], clone: int, clone3: int) -> bytes:
    """Return the filter, in the form of the kernel's packet filter."""
    refuse = _word(_RETURN, _ERRNO | errno.EPERM)
    program = [
        _word(_LOAD, _OF_ARCHITECTURE),
        _word(_JUMP_EQUAL, architecture, 1, 0),
        _word(_RETURN, _KILL),
        _word(_LOAD, _OF_NUMBER),
        _word(_JUMP_AT_LEAST, _X32, 0, 1),
        _word(_RETURN, _KILL),
        _word(_JUMP_EQUAL, clone3, 0, 1),
        _word(_RETURN, _ERRNO | errno.ENOSYS),
    ]
    for number in refused:
        program += [_word(_JUMP_EQUAL, number, 0, 1), refuse]
    program += [
        _word(_JUMP_EQUAL, clone, 0, 3),
        _word(_LOAD, _OF_FIRST_ARGUMENT),
        _word(_JUMP_BITS, _NEW_NAMESPACES, 0, 1),
        refuse,
        _word(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _word(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


if __name__ == "__main__":
    main(sys.argv[1:])
