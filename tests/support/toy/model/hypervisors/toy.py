"""The toy hypervisor: its row."""

from ganeti.model.hypervisor_param import HypervisorParam, HypervisorRow

TOY = HypervisorRow(
    name="toy",
    params=(HypervisorParam("tune", "waltz", "what guests play", choices=("waltz", "polka")),),
    runs_guests=False,
)
