"""The domain of Aliquot's resources: the part before the slash, which an admin may choose once for a cluster.

All services have to be given the same domain. The webhook writes these resources into pods, kube-scheduler leaves
them to the extender, the extender counts them, and the agents advertise them.
"""

import argparse
import re
from typing import Final

from aliquot.api.names import DOMAIN, ResourceNames

FLAG: Final = "--resource-domain"
ENV: Final = "ALIQUOT_RESOURCE_DOMAIN"
LONGEST: Final = 63
_LABEL: Final = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})+")
_RESERVED: Final = ("kubernetes.io", "k8s.io")
"""Kubernetes keeps these and all domains below them for itself."""
VENDORS: Final = (
    "aliyun.com",
    "amd.com",
    "cambricon.com",
    "google.com",
    "habana.ai",
    "hami.io",
    "huawei.com",
    "iluvatar.ai",
    "intel.com",
    "koordinator.sh",
    "metax-tech.com",
    "mthreads.com",
    "nebuly.com",
    "nvidia.com",
    "nvshare.com",
    "tencent.com",
    "volcano.sh",
)
"""In these domains, and in all below them, other device plugins and schedulers name cards."""
_REMEDY: Final = "choose a domain of your own, such as gpu.example.com"


class ResourceDomainError(ValueError):
    """A text that cannot be the domain of the resources; the message says why and what to write instead."""


def names_of(domain: str) -> ResourceNames:
    """The names of the resources in a domain.

    Raises:
        ResourceDomainError: the text is not a DNS name, or the domain belongs to another project.
    """
    if not _DOMAIN.fullmatch(domain) or len(domain) > LONGEST:
        raise ResourceDomainError(
            f"{domain!r} is not a DNS name in lower case with a dot in it and at most {LONGEST} characters; {_REMEDY}"
        )
    if domain.startswith("requests."):
        raise ResourceDomainError(
            f"{domain!r} begins with requests., which has a meaning of its own in a ResourceQuota; {_REMEDY}"
        )
    for owned in (*_RESERVED, *VENDORS):
        if domain == owned or domain.endswith(f".{owned}"):
            whose = "Kubernetes" if owned in _RESERVED else "another project"
            raise ResourceDomainError(f"{domain!r} belongs to {whose}, as {owned} does; {_REMEDY}")
    return ResourceNames.of(domain)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flag to a service's parser; the parsed value is in `names`."""
    parser.add_argument(
        FLAG,
        dest="names",
        type=_argument,
        default=ResourceNames(),
        metavar="DOMAIN",
        help=f"the part before the slash in the names of Aliquot's resources; default: {DOMAIN}",
    )


def _argument(text: str) -> ResourceNames:
    try:
        return names_of(text)
    except ResourceDomainError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
