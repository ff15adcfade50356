"""Has the arbiter lease the cards' time as the control pages say, to those whose pages say so.

A page is written first and the arbiter told after it, so whatever instant the agent is killed at, a tenant has at
least the cap that its page names.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from aliquot.api.pod_groups import GroupKey
from aliquot.arbiter import Arbiter, ArbiterError, TenantState, Terms
from aliquot.libshim.control_page import Control
from aliquot.plugin.container.tenant_pages import TenantPages

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Membership:
    """How a container is leased its cards with others.

    Args:
        group: Of its pod, if that has one. The group's pods on this node are leased their cards at the same time.
        exempt: Whether it has no leases, and works beside those of others.
    """

    group: GroupKey | None = None
    exempt: bool = False


NO_MEMBER: Final = Membership()


@dataclass
class Leases:
    """Who is leased time on this node. Without an arbiter nobody is. To be called from any thread."""

    arbiter: Arbiter | None
    doubts: dict[str, str] = field(default_factory=dict)
    """Whose word is not believed, by lease name, and why."""
    _refused: dict[str, str] = field(default_factory=dict)

    def follow(self, tenant: TenantPages, control: Control, member: Membership = NO_MEMBER) -> None:
        """Brings the arbiter in line with a control page that was just written.

        Raises:
            OSError: the pages cannot be opened.
        """
        if self.arbiter is None:
            return
        name = lease_name(tenant.pod_uid, tenant.container)
        terms = tuple(_terms(control))
        if not terms:
            self.arbiter.leave(name)
            return
        try:
            self.arbiter.enter(
                name, tenant.control, tenant.usage, terms, group_name(member.group), exempt=member.exempt
            )
        except ArbiterError as error:
            self._refuse(name, str(error))
            return
        self._refused.pop(name, None)
        if name in self.doubts:
            self.arbiter.distrust(name, self.doubts[name])

    def doubt(self, name: str, reason: str | None) -> None:
        """A tenant is not believed any more, or, None, again."""
        if reason is None:
            self.doubts.pop(name, None)
        else:
            self.doubts[name] = reason
        if self.arbiter is not None:
            self.arbiter.distrust(name, reason)

    def absent(self, name: str, cards: Collection[str]) -> None:
        """The driver sees nothing of a tenant on these cards, where it says to have work in flight."""
        if self.arbiter is not None:
            self.arbiter.absent(name, cards)

    def leave(self, name: str) -> None:
        """A tenant is gone."""
        self.doubts.pop(name, None)
        self._refused.pop(name, None)
        if self.arbiter is not None:
            self.arbiter.leave(name)

    def states(self) -> Mapping[str, TenantState]:
        """What the arbiter knows, by lease name."""
        return self.arbiter.tenants() if self.arbiter is not None else {}

    def quantum(self, card: str, quantum_ns: int | None) -> None:
        """Asks for long leases of a card, or, None, for the usual ones."""
        if self.arbiter is not None:
            self.arbiter.quantum(card, quantum_ns)

    def _refuse(self, name: str, why: str) -> None:
        """Its page stays as it is, a hard cap: containers of older agents have pages that no lease fits in."""
        if self._refused.get(name) != why:
            log.warning("the share of a tenant is a hard cap: %s", why)
        self._refused[name] = why


def lease_name(pod_uid: str, container: str) -> str:
    """Unlike the name in its page, nobody else's: pods of one name may end and start at the same time."""
    return f"{pod_uid}/{container}"


def group_name(group: GroupKey | None) -> str:
    """What the arbiter calls a group. It has the namespace in it, so nobody joins another namespace's group."""
    return f"{group.api}/{group}" if group else ""


def _terms(control: Control) -> Iterator[Terms]:
    for card in control.cards:
        if card.core_share_bp:
            yield Terms(card.uuid, card.core_share_bp, card.core_most_percent, card.priority)
