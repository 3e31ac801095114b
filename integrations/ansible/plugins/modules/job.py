#!/usr/bin/python
"""Jobs of a Ganeti cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: job
short_description: Wait for a job, or cancel it
options:
  id:
    description: Number of the job.
    type: int
    required: true
  state:
    description:
      - V(finished) waits for the end, and fails if the job has failed.
      - V(canceled) cancels a job that has not begun, and waits for its end.
    type: str
    choices: [finished, canceled]
    default: finished
extends_documentation_fragment: [ganeti.cluster.connection]
author: The Ganeti rebuild authors (@ganeti)
"""
EXAMPLES = r"""
- name: Wait for a job
  ganeti.cluster.job:
    address: cluster.example.com
    token: "{{ vault_ganeti_token }}"
    id: 812
"""
RETURN = r"""
job:
  description: The job, as in GET /2/jobs/ID.
  type: dict
  returned: success
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ganeti.cluster.plugins.module_utils.cluster import CONNECTION, connect
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest import Client, RestError

FINAL = ("success", "error", "canceled")
OPTIONS: dict[str, Any] = {
    "id": {"type": "int", "required": True},
    "state": {"type": "str", "choices": ["finished", "canceled"], "default": "finished"},
}


def run(client: Client, params: dict[str, Any], *, is_check: bool) -> dict[str, Any]:
    """Cancel the job if that is wanted, and wait for its end; RestError, ValueError."""
    job, is_to_end = params["id"], params["state"] == "canceled"
    changed = is_to_end and client.job(job)["status"] not in FINAL
    if is_check:
        return {"changed": changed, "job": client.job(job)}
    if changed:
        is_done, why = client.job_cancel(job)
        if not is_done:
            raise ValueError(f"job {job} cannot be cancelled: {why}")
    for _ in client.job_updates(job, limit_s=params["timeout"]):
        pass
    if not is_to_end:
        client.wait(job)
    return {"changed": changed, "job": client.job(job)}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={**CONNECTION, **OPTIONS}, supports_check_mode=True)
    try:
        with connect(module.params) as client:
            result = run(client, module.params, is_check=module.check_mode)
    except (RestError, ValueError) as err:
        module.fail_json(msg=str(err))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
