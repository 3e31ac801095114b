"""Convert stored rows of earlier versions to objects of this version."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from ganeti.base.errors import ConfigurationError, InputError
from ganeti.base.identifiers import is_uuid
from ganeti.base.ids import IdSource
from ganeti.config.kinds import KINDS, kind_named
from ganeti.config.transaction import put_row
from ganeti.model import wire
from ganeti.model.stored import FORMAT, Stored
from ganeti.store.interface import Delete, Operation

_REFERENCES = ("master_node", "group", "primary_node")


class _Head(msgspec.Struct):
    """The fields that show a row's version."""

    uuid: str = ""
    format: int = 0


@dataclass
class Reader:
    """Collects the rows of a configuration; `finish` returns objects, and the rows to write back."""

    ids: IdSource
    objects: list[Stored] = field(default_factory=list)
    changes: list[Operation] = field(default_factory=list)
    _old: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def add(self, kind: str, key: str, value: bytes) -> None:
        """Add a row of a known kind; ConfigurationError if it cannot be read."""
        try:
            head = wire.decode(value, _Head, what=f"{kind} {key}")
            if head.format > FORMAT:
                raise ConfigurationError(
                    f"{kind} {key} was written by a newer version (format {head.format}, this one"
                    f" knows {FORMAT}); start the newer version, or restore a backup"
                )
            if head.format == FORMAT and head.uuid == key:
                self._take(wire.decode(value, _type(kind), what=f"{kind} {key}"))
            else:
                self._old.append((kind, key, msgspec.json.decode(value)))
        except (InputError, msgspec.DecodeError) as err:
            raise ConfigurationError(f"the configuration is damaged: {err}") from err

    def finish(self) -> None:
        """Convert the old rows, now that all are known."""
        new_uuids: dict[str, str] = {}
        for _, key, raw in self._old:
            if not raw.get("uuid"):
                raw["uuid"] = key if is_uuid(key) else self.ids.uuid()
            if raw["uuid"] != key:
                new_uuids[key] = raw["uuid"]
        for kind, key, raw in self._old:
            self._upgrade(raw, new_uuids)
            try:
                thing = wire.convert(raw, _type(kind), what=f"{kind} {key}")
            except InputError as err:
                raise ConfigurationError(f"the configuration is damaged: {err}") from err
            if thing.uuid != key:
                self.changes.append(Delete(kind, key))
            self.changes.append(put_row(thing))
            self._take(thing)
        self._old.clear()

    def _take(self, thing: Stored) -> None:
        upgraded = KINDS[type(thing)].upgraded(thing)
        if upgraded != thing:
            self.changes.append(put_row(upgraded))
        self.objects.append(upgraded)

    def _upgrade(self, raw: dict[str, Any], new_uuids: dict[str, str]) -> None:
        raw["format"] = FORMAT
        for name in _REFERENCES:
            if name in raw:
                raw[name] = new_uuids.get(raw[name], raw[name])
        if "secondary_nodes" in raw:
            raw["secondary_nodes"] = [new_uuids.get(one, one) for one in raw["secondary_nodes"]]
        for part in (*raw.get("disks", ()), *raw.get("nics", ())):
            if not part.get("uuid"):
                part["uuid"] = self.ids.uuid()
        for nic in raw.get("nics", ()):
            bridge = nic.pop("bridge", None)
            if bridge:  # S80: the bridge became a parameter
                nic["nicparams"] = {"mode": "bridged", "link": bridge, **nic.get("nicparams", {})}


def _type(name: str) -> type[Stored]:
    kind = kind_named(name)
    if kind is None:
        raise ConfigurationError(f"{name} is not a kind of object")
    return kind.type
