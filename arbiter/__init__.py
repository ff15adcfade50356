"""Leases the time of a node's cards to their tenants (docs/compute.md says by which rules).

One native thread closes and opens the tenants' gates in their control pages, and reads from their usage pages what
they have to do and have had. It holds no lock of the interpreter. When it ends, or the process does, heartbeats
stop, and each tenant keeps the share in its control page as a hard cap.
"""

import errno
import itertools
import os
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from aliquot.arbiter._arbiter import ffi, lib

MAX_CARDS = 16
LATENESS_BOUNDS_S = tuple(ns / 1e9 for ns in lib.aq_lateness_bounds_ns)
_UUID_BYTES = 63
_SHARES = range(1, 10_001)
_PERCENTS = range(101)
_PRIORITIES = range(10)


class ArbiterError(Exception):
    """A tenant cannot be leased time; the message names it and the reason."""

    def __init__(self, tenant: str, reason: str) -> None:
        super().__init__(f"{tenant}: {reason}")
        self.tenant = tenant
        self.reason = reason


_REASONS = {
    "EINVAL": "its files are no pages of this version",
    "ENODATA": "its usage page has no room for what a lease needs",
    "ENODEV": "its control page does not have such a card",
}


@dataclass(frozen=True)
class Terms:
    """One card of one tenant.

    Args:
        card: UUID, as in the control page.
        share_bp: Hundredths of a percent of the card's time that are the tenant's own.
        most_percent: What it may have when others leave theirs; no more than its share: the tenant is capped.
        priority: 0 to 9; the higher is let in first. Of a tenant with several cards the highest counts.
    """

    card: str
    share_bp: int
    most_percent: int
    priority: int = 0


@dataclass(frozen=True)
class CardState:
    """What a tenant has had of one card since it entered, in nanoseconds.

    Args:
        guaranteed_ns: Due to it by its share while it had work.
        used_ns: Had by it.
        lent_ns: Of that, had beyond its share.
        held_ns: Leased to it.
        waiting: Whether it waits for a lease now.
    """

    guaranteed_ns: int
    used_ns: int
    lent_ns: int
    held_ns: int
    waiting: bool


@dataclass(frozen=True)
class TenantState:
    """A tenant: what it has had, by card, and whether what it says is believed; if not, why."""

    cards: dict[str, CardState]
    trusted: bool
    reason: str | None


@dataclass(frozen=True)
class Lateness:
    """How late the arbiter's thread woke, each time that it slept until an instant.

    Args:
        counts: How often by no more than each of `LATENESS_BOUNDS_S`, and by more than the one before it; at the end
            how often by more than all of them.
        sum_s: All of it together, in seconds.
    """

    counts: tuple[int, ...]
    sum_s: float


@dataclass
class _Guest:
    handle: Any
    files: tuple[tuple[int, int], ...]
    cards: tuple[str, ...]
    group: str
    exempt: bool
    doubt: str | None = None


class Arbiter:
    """Leases cards to tenants. To be called from any thread.

    Args:
        lease_ns: How long a tenant has the card for, while others want it.
        lent_ns: The same of time that is nobody's by right.
        polls: Looks at tenants' bells in turns, as on kernels before Linux 5.16, which cannot wait for several.
    """

    def __init__(self, *, lease_ns: int = 10_000_000, lent_ns: int = 10_000_000, polls: bool = False) -> None:
        rules = lib.aq_scheduler_rules()
        rules.lease_ns, rules.lent_ns = lease_ns, lent_ns
        self._native = ffi.gc(
            _made(lib.aq_arbiter_new(ffi.new("aq_rules *", rules), polls)), lib.aq_arbiter_free
        )
        self._turn = threading.Lock()
        self._clients: dict[str, _Guest] = {}
        self._groups: dict[str, int] = {}
        self._group_numbers = itertools.count(1)
        self._quanta: dict[str, int] = {}

    def start(self, *, real_time: bool = False) -> bool:
        """Starts the thread, with real-time priority if that is asked for and this process may give it (CAP_SYS_NICE).

        Returns whether it has that priority.

        Raises:
            OSError: it cannot be started.
        """
        error = lib.aq_arbiter_start(self._native, real_time)
        if real_time and error == errno.EPERM:
            return self.start()
        if error:
            raise OSError(error, os.strerror(error))
        return real_time

    def stop(self) -> None:
        """Ends the thread. Gates stay as they are, until tenants miss the heartbeat."""
        lib.aq_arbiter_stop(self._native)

    def close(self) -> None:
        """Ends the thread, and leaves each tenant with its share as a hard cap at once."""
        self.stop()
        for name in list(self._clients):
            self.leave(name)

    def enter(
        self,
        name: str,
        control: PathLike[str],
        usage: PathLike[str],
        terms: Sequence[Terms],
        group: str = "",
        *,
        exempt: bool = False,
    ) -> None:
        """Leases time to a tenant from now on; one that has entered gets other terms, or belongs to another group.

        The tenants of a group have their cards at the same time, as one tenant with several cards has: their work may
        wait for each other's. Of those that have a card in common one belongs to it. Empty: of no group.

        An exempt tenant has no leases: it is let in beside those of others, whenever time is due to it or nobody else
        wants its cards, and takes turns with them as the driver has it. It belongs to no group.

        Raises:
            ArbiterError: the terms make no sense, or the files are not pages that leases can be written in.
            OSError: the files cannot be read or, of the control page, written.
        """
        _check(name, terms)
        files, group = (_identity(control), _identity(usage)), "" if exempt else group
        cards = tuple(term.card for term in terms)
        with self._turn:
            known = self._clients.get(name)
            if known and (known.files, known.cards) == (files, cards):
                lib.aq_arbiter_change(self._native, known.handle, _encode(terms))
                self._regroup(known, group)
                self._exempt(known, exempt=exempt)
                return
            if known:
                self._leave(name)
            handle = self._enter(name, control, usage, terms, group)
            self._clients[name] = _Guest(handle, files, cards, group, exempt=False)
            self._exempt(self._clients[name], exempt=exempt)
            for card in cards:
                lib.aq_arbiter_quantum(self._native, card.encode(), self._quanta.get(card, 0))

    def leave(self, name: str) -> None:
        """Leases no more time to a tenant; what holds then is in its control page. Unknown tenants are ignored."""
        with self._turn:
            if name in self._clients:
                self._leave(name)

    def distrust(self, name: str, reason: str | None) -> None:
        """Charges a tenant for the time that it holds a card, and lends it none; None: it is believed again.

        Of itself the arbiter does not go back to believing a tenant whose pages it found damaged.
        """
        with self._turn:
            client = self._clients.get(name)
            if client:
                client.doubt = reason
                lib.aq_arbiter_doubt(self._native, client.handle, reason is not None)

    def absent(self, name: str, cards: Collection[str]) -> None:
        """Names the cards on which the driver sees nothing of what a tenant says to have in flight.

        There it takes no time from others, and pays for none. Unknown tenants are ignored.
        """
        with self._turn:
            client = self._clients.get(name)
            if client:
                entities = sum(1 << entity for entity, card in enumerate(client.cards) if card in cards)
                lib.aq_arbiter_absent(self._native, client.handle, entities)

    def quantum(self, card: str, ns: int | None) -> None:
        """Leases a card for so long at a time, as where tenants' memory must move in first; None: as usual."""
        with self._turn:
            self._quanta.pop(card, None)
            if ns:
                self._quanta[card] = ns
            lib.aq_arbiter_quantum(self._native, card.encode(), ns or 0)

    def tenants(self) -> dict[str, TenantState]:
        """Those that have entered, by name."""
        with self._turn:
            return {name: self._state(client) for name, client in self._clients.items()}

    def lateness(self) -> Lateness:
        """Since this arbiter was made."""
        told = ffi.new("aq_lateness *")
        lib.aq_arbiter_lateness(self._native, told)
        return Lateness(tuple(told.counts), told.sum_ns / 1e9)

    def _enter(
        self, name: str, control: PathLike[str], usage: PathLike[str], terms: Sequence[Terms], group: str
    ) -> Any:
        handle, number = ffi.new("aq_client **"), self._group_number(group)
        error = lib.aq_arbiter_enter(
            self._native, os.fsencode(control), os.fsencode(usage), number, _encode(terms), len(terms), handle
        )
        reason = _REASONS.get(errno.errorcode.get(error, ""))
        if reason:
            raise ArbiterError(name, reason)
        if error:
            raise OSError(error, os.strerror(error), str(control), None, str(usage))
        return handle[0]

    def _regroup(self, client: _Guest, group: str) -> None:
        if client.group != group:
            client.group = group
            lib.aq_arbiter_group(self._native, client.handle, self._group_number(group))

    def _exempt(self, client: _Guest, *, exempt: bool) -> None:
        if client.exempt != exempt:
            client.exempt = exempt
            lib.aq_arbiter_exempt(self._native, client.handle, exempt)

    def _group_number(self, group: str) -> int:
        """As the thread knows a group; 0: none."""
        in_use = {client.group for client in self._clients.values()}
        self._groups = {known: number for known, number in self._groups.items() if known in in_use}
        return self._groups.setdefault(group, next(self._group_numbers)) if group else 0

    def _leave(self, name: str) -> None:
        lib.aq_arbiter_leave(self._native, self._clients.pop(name).handle)

    def _state(self, client: _Guest) -> TenantState:
        state = ffi.new("aq_client_state *")
        lib.aq_arbiter_state(self._native, client.handle, state)
        cards = {card: _card_state(state.accounts[i]) for i, card in enumerate(client.cards)}
        damage = ffi.string(state.damage).decode() if state.damage else None
        return TenantState(cards, state.trust == lib.AQ_TRUSTED, damage or client.doubt)


def _made(native: Any) -> Any:
    if native == ffi.NULL:
        raise MemoryError
    return native


def _check(name: str, terms: Sequence[Terms]) -> None:
    if not 1 <= len(terms) <= MAX_CARDS or len({term.card for term in terms}) != len(terms):
        raise ArbiterError(name, f"{len(terms)} cards; terms are of 1 to {MAX_CARDS} different ones")
    for term in terms:
        if not 0 < len(term.card.encode()) <= _UUID_BYTES:
            raise ArbiterError(name, f"{term.card!r} is no card")
        if not (term.share_bp in _SHARES and term.most_percent in _PERCENTS and term.priority in _PRIORITIES):
            raise ArbiterError(name, f"{term} is out of range")


def _encode(terms: Sequence[Terms]) -> Any:
    return ffi.new(
        "aq_terms[]",
        [(term.card.encode(), term.share_bp, term.most_percent, term.priority) for term in terms],
    )


def _identity(path: PathLike[str]) -> tuple[int, int]:
    status = Path(path).lstat()
    return status.st_dev, status.st_ino


def _card_state(account: Any) -> CardState:
    return CardState(
        account.guaranteed_ns, account.used_ns, account.lent_ns, account.held_ns, bool(account.waiting)
    )
