"""What the modules of this collection share: the connection, and changes that are planned before they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule, env_fallback
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest import (
    Client,
    NotFound,
    RestError,
)

CONNECTION: dict[str, Any] = {
    "address": {"type": "str", "fallback": (env_fallback, ["GANETI_ADDRESS"])},
    "user": {"type": "str", "fallback": (env_fallback, ["GANETI_USER"])},
    "password": {"type": "str", "no_log": True, "fallback": (env_fallback, ["GANETI_PASSWORD"])},
    "token": {"type": "str", "no_log": True, "fallback": (env_fallback, ["GANETI_TOKEN"])},
    "ca_file": {"type": "path", "fallback": (env_fallback, ["GANETI_CA_FILE"])},
    "validate_certs": {"type": "bool", "default": True},
    "timeout": {"type": "int", "default": 3600},
}


def connect(options: Mapping[str, Any]) -> Client:
    """Return the client for the options of a module or of the inventory; ValueError."""
    if not options["address"]:
        raise ValueError("address is missing: pass it, or set GANETI_ADDRESS")
    return Client(
        options["address"],
        user=options["user"],
        password=options["password"],
        token=options["token"],
        ca_file=options["ca_file"],
        verify=options["validate_certs"],
    )


class Plan:
    """The changes of one object: what differs, and the jobs that make it so, in order."""

    def __init__(self, present: bool) -> None:
        self.before: dict[str, Any] = {"state": "present" if present else "absent"}
        self.after = dict(self.before)
        self._jobs: list[Callable[[], int]] = []

    @property
    def is_empty(self) -> bool:
        return not self._jobs

    def note(self, name: str, before: Any, after: Any) -> None:
        """Show a difference."""
        self.before[name], self.after[name] = before, after

    def job(self, submit: Callable[[], int]) -> None:
        """Add a job."""
        self._jobs.append(submit)

    def run(self, client: Client, limit_s: float) -> list[int]:
        """Submit each job after the end of the one before; return their numbers. RestError."""
        done = []
        for submit in self._jobs:
            job = submit()
            client.wait(job, limit_s=limit_s)
            done.append(job)
        return done


def differing(wanted: Mapping[str, Any] | None, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the wanted values that an object does not have."""
    return {
        name: value
        for name, value in (wanted or {}).items()
        if _plain(present.get(name)) != _plain(value)
    }


def _plain(value: Any) -> Any:
    """Return a value as people write it: YAML has `yes` and `512`, and the cluster may have text."""
    return str(value).lower() if isinstance(value, bool | int | float) else value


def plan_tags(
    plan: Plan,
    name: str,
    tags: tuple[list[str] | None, list[str]],
    add: Callable[..., int],
    remove: Callable[..., int],
) -> None:
    """Plan that an object has exactly the wanted tags; `tags` are the wanted and the present ones."""
    wanted, present = tags
    if wanted is None or set(wanted) == set(present):
        return
    plan.note("tags", sorted(present), sorted(set(wanted)))
    if new := sorted(set(wanted) - set(present)):
        plan.job(lambda: add(name, tag=new))
    if old := sorted(set(present) - set(wanted)):
        plan.job(lambda: remove(name, tag=old))


def found(read: Callable[[str], Any], name: str) -> Any:
    """Return an object; None if it does not exist."""
    try:
        return read(name)
    except NotFound:
        return None


def run_module(
    options: dict[str, Any],
    make_plan: Callable[[Client, dict[str, Any]], Plan],
    read: str,
    **settings: Any,
) -> None:
    """Run a module: plan, change unless in check mode, and return the object as it is then."""
    module = AnsibleModule(
        argument_spec={**CONNECTION, **options}, supports_check_mode=True, **settings
    )
    params = module.params
    try:
        with connect(params) as client:
            plan = make_plan(client, params)
            result: dict[str, Any] = {"changed": not plan.is_empty, "jobs": []}
            if module._diff:  # noqa: SLF001 - the way of Ansible's own modules
                result["diff"] = {"before": plan.before, "after": plan.after}
            if not module.check_mode:
                result["jobs"] = plan.run(client, params["timeout"])
            result[read] = found(getattr(client, read), params["name"])
    except (RestError, ValueError) as err:
        module.fail_json(msg=str(err))
    module.exit_json(**result)
