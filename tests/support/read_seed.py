"""Run by Debian's Python: cloud-init itself reads a NoCloud seed, and makes the guest's network configuration of it."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

from cloudinit import distros, helpers, util  # type: ignore[import-not-found]  # Debian's package
from cloudinit.config import schema  # type: ignore[import-not-found]  # Debian's package
from cloudinit.net import eni, extract_physdevs, netplan, network_state  # type: ignore[import-not-found]  # Debian's package
from cloudinit.sources.DataSourceNoCloud import DataSourceNoCloud  # type: ignore[import-not-found]  # Debian's package


def read(files: Path, place: Path) -> dict[str, object]:
    """What it knows then, and what it writes for `ifupdown` and for netplan."""
    seed = place / "var/lib/cloud/seed/nocloud"
    shutil.copytree(files, seed)
    paths = helpers.Paths({"cloud_dir": str(place / "var/lib/cloud"), "run_dir": str(place)})
    settings = {"datasource": {"NoCloud": {"fs_label": None}}}
    distribution = distros.fetch("debian")("debian", settings, paths)
    source = DataSourceNoCloud(settings, distribution, paths)
    # Neither this machine's firmware nor its command line is the guest's.
    module = sys.modules[DataSourceNoCloud.__module__]
    module.dmi = SimpleNamespace(read_dmi_data=lambda _key: None)  # type: ignore[attr-defined]  # what it imports
    util.get_cmdline = lambda: ""
    is_found = source._get_data()
    config = source.network_config
    state = network_state.parse_net_config_data(config, skip_broken=False)
    renderer = netplan.Renderer({"postcmds": False, "netplan_path": "etc/netplan.yaml"})
    renderer.render_network_state(state, target=str(place))
    eni.Renderer().render_network_state(state, target=str(place))
    user_data = source.get_userdata_raw().decode()
    if user_data.startswith("#cloud-config"):
        schema.validate_cloudconfig_schema(util.load_yaml(user_data), strict=True)
    return {
        "found": is_found,
        "instance_id": source.get_instance_id(),
        "name": source.get_hostname(fqdn=True)[0],
        "keys": source.get_public_ssh_keys(),
        "user_data": user_data,
        "network": util.load_yaml((place / "etc/netplan.yaml").read_text())["network"],
        "names": {mac: name for mac, name, *_ in extract_physdevs(config)},
        "interfaces": (place / "etc/network/interfaces").read_text(),
    }


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), Path(sys.argv[2]))))  # noqa: T201
