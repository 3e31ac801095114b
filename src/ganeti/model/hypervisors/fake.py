"""The fake hypervisor, which pretends that guests run: for tests and trials."""

from ganeti.model.hypervisor_param import HypervisorParam, HypervisorRow

FAKE = HypervisorRow(
    name="fake",
    params=(
        HypervisorParam(
            "migration_mode", "live", "accepted and ignored", choices=("live", "non-live")
        ),
    ),
    runs_guests=False,
)
