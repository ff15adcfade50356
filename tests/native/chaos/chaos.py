"""Two tenants share a card and do everything at once, while processes are killed and stopped and limits changed."""

import random
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from aliquot.libshim.control_page import (
    CardLimit,
    Control,
    Enforcement,
    change_control,
    create_control,
    touch_granter,
)
from aliquot.libshim.usage_page import create_usage
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.chaos.auditor import Auditor
from tests.native.chaos.crowd import Crowd, ViolationError
from tests.native.shells import OUT, SUCCESS, Shell
from tests.native.tenants import Tenant

MIB = 1 << 20
LIMIT = 384 * MIB
CONTEXT_MIB = 16
HERE = Path(__file__).parent
FREE_AGAIN_S = 5.0
ROUND_S = 20.0


def compile_client(into: Path) -> Path:
    """Compiles the program that the tenants run."""
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]
    command = ["cc", *flags, "-o", into / "client", *HERE.glob("*.c"), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return into / "client"


@dataclass
class Chaos:
    """One machine, two tenants, and the dice."""

    root: Path
    seed: int
    done: Counter[str] = field(default_factory=Counter)
    """How often each act was done; steps of clients; looks of auditors."""

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        card = SimCard(memory_mib=1024, context_mib=CONTEXT_MIB, green_mib=4, module_mib=2)
        self.machine = SimMachine(self.root / "machine", [card])
        self.machine.create()
        self.client = compile_client(self.root)
        self.tenants = [self._tenant(f"tenant{number}") for number in range(2)]

    def _tenant(self, name: str) -> Tenant:
        tenant = Tenant(self.machine, self.root / name)
        tenant.directory.mkdir()
        create_control(tenant.control, Control(f"chaos/{name}/main", (self._card(),)))
        create_usage(tenant.usage_page)
        return tenant

    def _card(self) -> CardLimit:
        uuid = self.machine.cards[0].uuid
        return CardLimit(uuid, LIMIT, core_percent=50, context_bytes=CONTEXT_MIB * MIB)

    def run(self, seconds: float) -> None:
        """Rounds of at most `ROUND_S`, each from birth to death. Raises ViolationError."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._round(min(ROUND_S, end - time.monotonic()))

    def _round(self, seconds: float) -> None:
        crowds = [Crowd(tenant, self.client, self.dice) for tenant in self.tenants]
        auditors = [Auditor(crowd) for crowd in crowds]
        try:
            self._live(crowds, auditors, seconds)
            self._end(crowds)
        finally:
            for crowd in crowds:
                crowd.kill_all()
        self.done["looks"] += sum(auditor.total for auditor in auditors)
        for tenant in self.tenants:
            self._check_death(tenant)

    def _live(self, crowds: list[Crowd], auditors: list[Auditor], seconds: float) -> None:
        end, act_at = time.monotonic() + seconds, 0.0
        while (now := time.monotonic()) < end:
            for crowd, auditor in zip(crowds, auditors, strict=True):
                crowd.check_living()
                touch_granter(crowd.tenant.control, time.monotonic_ns())
                auditor.look()
            if now >= act_at:
                self._act(self.dice.choice(crowds))
                act_at = now + self.dice.uniform(0.02, 0.4)

    # ---- acts ----

    def _act(self, crowd: Crowd) -> None:
        acts = {
            "kill": Crowd.replace,
            "stop": Crowd.stop,
            "limit": self._change_limit,
            "enforcement": self._change_enforcement,
            "grant": self._change_grant,
            "adjust": self._change_adjust,
            "core": self._change_core,
            "managed": self._change_managed,
        }
        name = self.dice.choices(list(acts), weights=[6, 6, 4, 2, 2, 2, 2, 2])[0]
        acts[name](crowd)
        self.done[name] += 1

    def _change(self, crowd: Crowd, **changes: object) -> None:
        def change(control: Control | None) -> Control:
            assert control is not None
            return replace(control, cards=(replace(control.cards[0], **changes),))  # type: ignore[arg-type]

        change_control(crowd.tenant.control, change)

    def _change_limit(self, crowd: Crowd) -> None:
        self._change(crowd, memory_bytes=self.dice.choice([LIMIT, LIMIT, self.dice.randrange(LIMIT)]))

    def _change_grant(self, crowd: Crowd) -> None:
        grant = self.dice.choice([None, self.dice.randrange(LIMIT // 4, LIMIT)])
        overflow = None if grant is None else self.dice.choice([None, LIMIT])
        self._change(crowd, grant_bytes=grant, overflow_bytes=overflow)

    def _change_managed(self, crowd: Crowd) -> None:
        self._change(crowd, managed_resident=self.dice.random() < 0.5)

    def _change_adjust(self, crowd: Crowd) -> None:
        self._change(crowd, adjust_bytes=self.dice.choice([0, self.dice.randrange(-32 * MIB, 32 * MIB)]))

    def _change_core(self, crowd: Crowd) -> None:
        self._change(crowd, core_percent=self.dice.choice([0, 30, 50, 100]))

    def _change_enforcement(self, crowd: Crowd) -> None:
        wanted = self.dice.choice([*Enforcement, Enforcement.ENFORCE])

        def change(control: Control | None) -> Control:
            assert control is not None
            return replace(control, enforcement=wanted)

        change_control(crowd.tenant.control, change)

    # ---- the end ----

    def _end(self, crowds: list[Crowd]) -> None:
        """Some give all back and some are killed with what they have."""
        for crowd in crowds:
            name = crowd.tenant.directory.name
            change_control(
                crowd.tenant.control, lambda _, name=name: Control(f"chaos/{name}/main", (self._card(),))
            )
            self.done["steps"] += crowd.watch.steps()
            if self.dice.random() < 0.5:
                self._end_gently(crowd)
            else:
                crowd.kill_all()

    def _end_gently(self, crowd: Crowd) -> None:
        crowd.give_all_back()
        self.done["given back"] += 1
        end = time.monotonic() + FREE_AGAIN_S
        while (left := self._left(crowd)) and time.monotonic() < end:
            pass
        if left:
            raise ViolationError(f"{crowd.tenant.directory.name}: left when all was given back: {left}")
        crowd.leave()

    def _left(self, crowd: Crowd) -> str:
        """What is charged, or on the card."""
        usage = crowd.tenant.usage()
        sizes = self.machine.processes(self.machine.cards[0].uuid)
        held = {pid: size for pid, size in sizes.items() if crowd.owns(pid) and size}
        charged = [card.memory_used_bytes for card in usage.cards]
        return f"charged {charged}, {usage.processes}, held {held}" if held or any(charged) else ""

    def _check_death(self, tenant: Tenant) -> None:
        """Somebody new gets all of the slice in time, and leaves nothing."""
        end = time.monotonic() + FREE_AGAIN_S
        with Shell(tenant).begin() as shell:
            while shell.call("cuMemAlloc_v2", OUT, LIMIT - CONTEXT_MIB * MIB)[0] != SUCCESS:
                if time.monotonic() > end:
                    raise ViolationError(f"{tenant.directory.name}: not free after death: {tenant.usage()}")
            shell.say(".return")
            shell.process.wait()
        usage = tenant.usage()
        if usage.processes or any(card.memory_used_bytes for card in usage.cards):
            raise ViolationError(f"{tenant.directory.name}: not zero after death: {usage}")
