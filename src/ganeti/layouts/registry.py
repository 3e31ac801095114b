"""The planner of each disk template: what the modules of this package declare."""

from collections.abc import Iterator

from ganeti.base.modules import implementations
from ganeti.layouts.planner import Planner


def find_planners() -> Iterator[tuple[str, Planner]]:
    """Return each planner, with the name of its template."""
    for planner in implementations("ganeti.layouts", Planner):  # type: ignore[type-abstract]  # only looked for
        yield planner.template.name, planner()


PLANNERS: dict[str, Planner] = dict(find_planners())
