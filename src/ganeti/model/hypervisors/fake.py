"""The fake hypervisor, which simulates guests: for tests and trials."""

from ganeti.model.hypervisor_param import HypervisorParam, HypervisorRow

FAKE = HypervisorRow(
    name="fake",
    params=(
        HypervisorParam(
            "migration_mode",
            "live",
            "ignored; kept for compatibility with Ganeti 3",
            choices=("live", "non-live"),
        ),
    ),
    runs_guests=False,
)
