"""The options of every module of this collection."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of the connection to a cluster."""

    DOCUMENTATION = r"""
requirements: [Python 3.11 on the host that runs the module]
options:
  address:
    description: Host of the REST interface, as V(HOST) or V(HOST:PORT). Default is the environment variable E(GANETI_ADDRESS).
    type: str
  user:
    description: User of the REST interface; with O(password). Default is E(GANETI_USER).
    type: str
  password:
    description: Password of the user. Default is E(GANETI_PASSWORD).
    type: str
  token:
    description: Token, instead of O(user) and O(password). Default is E(GANETI_TOKEN).
    type: str
  ca_file:
    description:
      - File with the certificate that signs the server's, for example C(rapi.pem) without its key.
      - Default is E(GANETI_CA_FILE), and then the authorities of the system.
    type: path
  validate_certs:
    description: Verify the server's certificate.
    type: bool
    default: true
  timeout:
    description: Seconds to wait for each job. A job that takes longer continues.
    type: int
    default: 3600
"""
