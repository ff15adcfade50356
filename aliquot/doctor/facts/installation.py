"""Where Aliquot is installed: in the namespace that the webhooks' configuration calls."""

from typing import Final

from aliquot.api.names import WEBHOOKS_NAME
from aliquot.doctor.facts.objects import WEBHOOKS
from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.objects import UNREADABLE

NAMESPACE: Final = "aliquot-system"
"""Where docs/install.md installs."""


async def installed_in(api: Api) -> str:
    """That namespace; the usual one where it cannot be told."""
    try:
        webhooks = (await api.get(WEBHOOKS, WEBHOOKS_NAME)).webhooks
    except (ApiError, *UNREADABLE):
        webhooks = ()
    services = (one.client_config.service for one in webhooks)
    return next((one.namespace for one in services if one), NAMESPACE)
