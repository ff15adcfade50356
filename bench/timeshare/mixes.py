"""Random mixes of tenants on one card, the same for the same seed."""

import random

from .cases import Case, Load, Mode, Question, Tenant, batch

MOST_TENANTS = 8
LENGTHS_US = (100, 300, 1000, 5000, 20_000)
LEAST_SHARE = 5
SOLD = (60, 100)
"""Percent of a card that all shares together are, from and to."""


def mix(seed: int, number: int) -> Case:
    """Tenants of every mode, with everything that `Load` can vary."""
    dice = random.Random(f"{seed}/{number}")  # noqa: S311 - a load, no secret
    shares = _shares(dice, dice.randint(1, MOST_TENANTS))
    tenants = tuple(_tenant(dice, share) for share in shares)
    tenants = _weighed(tenants)
    return Case(f"mix/{seed}/{number}", tenants, Question.MIX, concurrent=dice.random() < 0.25)


def _shares(dice: random.Random, count: int) -> list[int]:
    """Whole percents that are sold."""
    spare = dice.randint(*SOLD) - LEAST_SHARE * count
    cuts = sorted(dice.randint(0, spare) for _ in range(count))
    return [LEAST_SHARE + high - low for low, high in zip([0, *cuts], cuts, strict=False)]


def _tenant(dice: random.Random, share: int) -> Tenant:
    mode = dice.choices((Mode.CAPPED, Mode.BURST, Mode.UNCAPPED), (5, 3, 1))[0]
    pauses = dice.random() < 0.3
    loads = tuple(_load(dice, pauses=pauses) for _ in range(1 if pauses else dice.choice((1, 1, 1, 2, 4))))
    return Tenant(share, loads, mode)


def _load(dice: random.Random, *, pauses: bool) -> Load:
    lengths = tuple(dice.choice(LENGTHS_US) for _ in range(dice.choice((1, 1, 2, 3))))
    graph = dice.choice((0, 0, 0, 2, 5)) if max(lengths) <= 5000 else 0
    return Load(
        lengths,
        dice.choice((64, 528, 2112, 10_000)),
        batch(min(lengths), dice.choice((1, 2, 4) if pauses else (1, 2, 4, 16, 64))),
        graph=graph,
        idle_us=dice.randint(50_000, 300_000) if pauses else 0,
        random=pauses,
        awake_ms=dice.randint(100, 400) if pauses else 0,
        threads=1 if pauses else dice.choice((1, 1, 1, 2)),
    )


def _weighed(tenants: tuple[Tenant, ...]) -> tuple[Tenant, ...]:
    """The uncapped have equal parts of what the others leave."""
    uncapped = sum(tenant.mode is Mode.UNCAPPED for tenant in tenants)
    left = 100 - sum(tenant.share for tenant in tenants if tenant.mode is not Mode.UNCAPPED)
    return tuple(
        Tenant(left / uncapped, tenant.loads, tenant.mode) if tenant.mode is Mode.UNCAPPED else tenant
        for tenant in tenants
    )
