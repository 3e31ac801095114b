"""What a program asks of its files, recorded by `strace`, and whether that would survive a power cut.

Of a file, what is written is lost until the file is synced; of a directory, what is created, renamed or
removed there is, until the directory is synced. A program says `ANSWER` where somebody may rely on what
it did before.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HAS_STRACE = shutil.which("strace") is not None
ANSWER = "ANSWER"
_CALLS = (
    "open,openat,creat,write,pwrite64,writev,ftruncate,truncate,fsync,fdatasync,sync_file_range,"
    "rename,renameat,renameat2,unlink,unlinkat,link,linkat"
)
_WRITES = {"write", "pwrite64", "writev", "ftruncate"}
_LINE = re.compile(r"^\d+\s+(?P<call>\w+)\((?P<words>.*)\)\s+= (?P<result>-?\d+)")
_OF_DESCRIPTOR = re.compile(r"^\d+<(?P<path>[^>]*)>")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Call:
    """One call that succeeded: its files in order, and the text that was written."""

    name: str
    paths: tuple[str, ...]
    text: str = ""


def traced(words: Sequence[str], log: Path) -> list[Call]:
    """Run a program to its end; its calls and those of its children, in order."""
    options = ["-f", "-qq", "-y", "-s", "64", "-e", f"trace={_CALLS}", "-o", str(log)]
    subprocess.run(["strace", *options, *words], check=True, stdin=subprocess.DEVNULL, timeout=120)
    return list(_calls(_whole(log.read_text(errors="replace").splitlines())))


def traced_python(script: str, log: Path, *arguments: str) -> list[Call]:
    """Run a script of Python."""
    return traced([sys.executable, "-c", script, *arguments], log)


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Calls that were interrupted by those of other threads, put together where they ended."""
    begun: dict[str, str] = {}
    for line in lines:
        thread, _, rest = line.partition(" ")
        if line.endswith("<unfinished ...>"):
            begun[thread] = rest.lstrip().removesuffix("<unfinished ...>").rstrip()
        elif " resumed>" in line:
            yield f"{thread} {begun.pop(thread, '')}{line.partition(' resumed>')[2]}"
        else:
            yield line


def _calls(lines: Iterable[str]) -> Iterator[Call]:
    for line in lines:
        found = _LINE.match(line)
        if found is None or int(found["result"]) < 0:
            continue
        name, words = found["call"], found["words"]
        descriptor = _OF_DESCRIPTOR.match(words)
        texts = _TEXT.findall(words)
        if name.startswith(("open", "creat")):
            if "O_CREAT" in words or name == "creat":
                yield Call("create", (texts[0],))
        elif descriptor is not None:
            yield Call(name, (descriptor["path"],), texts[0] if texts else "")
        else:
            yield Call(name, tuple(texts))


@dataclass
class Loss:
    """What a power cut would take at some moment; `at` says which."""

    at: str
    files: frozenset[str]
    names: frozenset[str]


class Disk:
    """What is on the disk for good, as the calls go on; only of the files that are watched."""

    def __init__(self, is_watched: Callable[[str], bool], existing: Iterable[Path] = ()) -> None:
        self._is_watched = is_watched
        self._names = {str(path) for path in existing}
        self.unsynced: set[str] = set()
        """Files with content that is not on disk."""
        self.unsynced_names: set[str] = set()
        """Files whose name is new, changed or gone, and that is not on disk."""
        self.losses: list[Loss] = []

    def follow(self, calls: Iterable[Call]) -> int:
        """Carry them out; how many answers there were. What would be lost at one is a loss."""
        answers = 0
        for call in calls:
            if call.name == "write" and call.text.startswith(ANSWER):
                answers += 1
                self._look(f"answer {answers}")
            else:
                self._carry_out(call)
        return answers

    def _look(self, at: str) -> None:
        if self.unsynced or self.unsynced_names:
            self.losses.append(Loss(at, frozenset(self.unsynced), frozenset(self.unsynced_names)))

    def _carry_out(self, call: Call) -> None:
        name, paths = call.name, call.paths
        if name in ("fsync", "fdatasync"):
            self.unsynced.discard(paths[0])
            self.unsynced_names = {
                path for path in self.unsynced_names if str(Path(path).parent) != paths[0]
            }
        elif name in _WRITES and self._is_watched(paths[0]):
            self.unsynced.add(paths[0])
        elif name.startswith("rename"):
            old, new = paths[0], paths[-1]
            if old in self.unsynced and self._is_watched(new):
                self.losses.append(Loss(f"rename to {new}", frozenset((old,)), frozenset()))
            self.unsynced.discard(old)
            self._names.discard(old)
            self.unsynced_names.discard(old)
            self._change_name(new)
        elif name.startswith("unlink"):
            self._names.discard(paths[-1])
            self.unsynced.discard(paths[-1])
            self._change_name(paths[-1], exists=False)
        elif name in ("create", "link", "linkat") and paths[-1] not in self._names:
            self._change_name(paths[-1])

    def _change_name(self, path: str, *, exists: bool = True) -> None:
        if exists:
            self._names.add(path)
        if self._is_watched(path):
            self.unsynced_names.add(path)
