"""The table of faults: `docs/faults.md` is made of it, and a test holds both against the tests that it names."""

from tests.integration.faults.catalogue.control import CONTROL
from tests.integration.faults.catalogue.fault import Fault
from tests.integration.faults.catalogue.node import NODE
from tests.integration.faults.catalogue.tenant import TENANT

GROUPS: dict[str, tuple[Fault, ...]] = {
    "The node": NODE,
    "Admission, placement and the control plane": CONTROL,
    "Tenants, upgrades and the container runtime": TENANT,
}
