"""Import and export of hypervisor parameters: the names are equal, defaults and some values are not."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.model.hypervisor_param import CD_DRIVES, EMPTY_DRIVE, unfit_for_images
from ganeti.model.hypervisor_params import (
    HYPERVISOR_PARAMS,
    check_hypervisor_params,
    hypervisor_defaults,
)
from ganeti.model.hypervisors import HYPERVISORS
from ganeti.model.objects import Cluster, Instance
from ganeti.model.params import Params
from ganeti.upstream.choices import Reading
from ganeti.upstream.report import Judge

_IMAGES = (*CD_DRIVES, "floppy_image_path")
_DIRECTORIES = "image_directories"


def read_of_cluster(reading: Reading, given: Any, *, shutdown_counts: bool) -> dict[str, Params]:
    """Hypervisor -> parameters that differ from our defaults."""
    layers = given if isinstance(given, Mapping) else {}
    found = {}
    for name, row in HYPERVISORS.items():
        own = {**row.upstream_defaults, **_an_object(layers.get(name))}
        params = read(reading, "cluster", "hvparams", name, own, shutdown_counts=shutdown_counts)
        base = hypervisor_defaults(name)
        params = {key: value for key, value in params.items() if value != base[key]}
        if params:
            found[name] = params
    if others := sorted(layers.keys() - HYPERVISOR_PARAMS.keys()):
        reading.keep(
            "cluster", "hvparams", f"these hypervisors are not supported: {', '.join(others)}"
        )
    return found


def read_of_os(
    reading: Reading, given: Any, *, shutdown_counts: bool
) -> dict[str, dict[str, Params]]:
    """OS -> hypervisor -> parameters."""
    found: dict[str, dict[str, Params]] = {}
    for os, layers in _an_object(given).items():
        for name, params in _an_object(layers).items():
            where = f"os_hvp.{os}"
            if name not in HYPERVISOR_PARAMS:
                reading.keep("cluster", where, f"{name} is not supported")
                continue
            own = read(reading, "cluster", where, name, params, shutdown_counts=shutdown_counts)
            if own:
                found.setdefault(os, {})[name] = own
    return found


def read(
    reading: Reading,
    what: str,
    field: str,
    hypervisor: str,
    given: Any,
    *,
    shutdown_counts: bool,
    of_instance: bool = False,
) -> Params:
    """Return the supported parameters of one layer."""
    known = HYPERVISOR_PARAMS[hypervisor]
    own = dict(_an_object(given))
    if of_instance:
        own = {
            name: one for name, one in own.items() if name not in known or not known[name].is_global
        }
    if own.get("user_shutdown") and not shutdown_counts:
        del own["user_shutdown"]
        reading.keep(what, f"{field}.{hypervisor}.user_shutdown", "enabled_user_shutdown is off")

    def check(params: Params) -> Params:
        (name,) = params
        if name in HYPERVISORS[hypervisor].upstream_lacks:
            raise InputError("the field is not supported")
        return check_hypervisor_params(hypervisor, params, of_instance=of_instance, field="")

    return reading.params(what, f"{field}.{hypervisor}", own, check)


def own_layers(cluster: Cluster, instances: Iterable[Instance], hypervisor: str) -> list[Params]:
    """The layers of a hypervisor's parameters: cluster, OSes and instances."""
    layers = [cluster.hvparams.get(hypervisor, {})]
    layers += [one.get(hypervisor, {}) for one in cluster.os_hvp.values()]
    return layers + [one.hvparams for one in instances if one.hypervisor == hypervisor]


def with_images(reading: Reading, cluster: Cluster, instances: Collection[Instance]) -> Cluster:
    """Return the cluster with the allowed directories of images for its guests."""
    hvparams = dict(cluster.hvparams)
    for name, params in HYPERVISOR_PARAMS.items():
        if _DIRECTORIES not in params:
            continue
        default = str(hypervisor_defaults(name)[_DIRECTORIES])
        layers = own_layers(cluster, instances, name)
        if found := _image_directories(reading, layers, default):
            hvparams[name] = {**hvparams.get(name, {}), _DIRECTORIES: found}
    return replace(cluster, hvparams=hvparams)


def _image_directories(reading: Reading, layers: list[Params], default: str) -> str:
    """Return the directories of images in all these layers, which the cluster must allow; '' for the default."""
    found: dict[str, None] = {}
    for params in layers:
        for name in _IMAGES:
            path = str(params.get(name, ""))
            if not path.startswith("/") or path.startswith(f"{default}/"):
                continue
            directory = str(PurePosixPath(path).parent)
            if why := unfit_for_images(directory):
                reading.unknown("cluster", name, f"{path}: {why}")
            else:
                found[directory] = None
    if not found:
        return ""
    text = ":".join([default, *sorted(found)])
    reading.change("cluster", _DIRECTORIES, f"is {text}, the directories of the images")
    return text


def written(judge: Judge, what: str, hypervisor: str, params: Mapping[str, Any]) -> Params:
    """Return one layer in upstream's form."""
    lacks, base = HYPERVISORS[hypervisor].upstream_lacks, hypervisor_defaults(hypervisor)
    new = {name: value for name, value in params.items() if name not in lacks}
    for name, changes_machine in lacks.items():
        if changes_machine and params.get(name, base[name]) != base[name]:
            judge.unknown(what, f"{hypervisor}.{name}", f"upstream Ganeti has no {params[name]}")
    if params.get("accelerator") == "tcg":
        new["kvm_flag"] = "disabled"
    if new.get("disk_aio") == "io_uring":
        new["disk_aio"] = "threads"
        judge.change(what, f"{hypervisor}.disk_aio", "is threads, not io_uring")
    for drive in CD_DRIVES:
        if new.get(drive) == EMPTY_DRIVE:
            new[drive] = ""
            judge.change(what, f"{hypervisor}.{drive}", "an empty drive is not supported")
    return new


def written_of_cluster(judge: Judge, layers: Mapping[str, Params]) -> dict[str, Params]:
    """Return every hypervisor of this implementation with a value for each parameter."""
    return {
        name: written(judge, "cluster", name, hypervisor_defaults(name) | layers.get(name, {}))
        for name in HYPERVISOR_PARAMS
    }


def _an_object(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}
