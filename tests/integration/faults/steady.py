"""A program that computes while others die around it."""

import json
from pathlib import Path

from aliquot.cli.demo.stack import Stack
from tests.integration.journey.auditor import MIB
from tests.integration.journey.programs import Program

ASKED_MIB, HELD_MIB = 4096, 2048


class Steady:
    """A CUDA program in a pod that holds memory; `check` says that it is the same one and holds it still."""

    def __init__(self, stack: Stack, name: str = "steady") -> None:
        self._stack, self.name = stack, name
        self._program = Program(stack, name, f"{ASKED_MIB}Mi")
        self.uid = self._program.uid
        assert self._program.alloc(HELD_MIB) == f"CUDA_SUCCESS of {ASKED_MIB}"
        self._was = self._seen()

    def check(self) -> None:
        """Its container, process, device ids and memory are what they were, and its limit holds."""
        assert self._seen() == self._was
        assert self._program.alloc(ASKED_MIB) == f"CUDA_ERROR_OUT_OF_MEMORY of {ASKED_MIB}"

    def end(self) -> None:
        """Delete its pod."""
        self._stack.kubectl.delete("pods", self.name, grace=0)
        self._stack.kubectl.wait_gone("pods", self.name)

    def _seen(self) -> dict[str, object]:
        (status,) = self._stack.kubectl.get("pods", self.name)["status"]["containerStatuses"]
        (node,) = self._stack.nodes.values()
        held = [node.machine.processes(card.uuid) for card in node.machine.cards]
        mine = {pid: size for one in held for pid, size in one.items() if self._owns(pid)}
        assert list(mine.values()) == [HELD_MIB * MIB]
        return {
            "container": status["containerID"],
            "restarts": status["restartCount"],
            "held": mine,
            "ids": device_ids(self._stack.cluster.node(node.name).device_plugins, self.uid),
        }

    def _owns(self, pid: int) -> bool:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        return f"/tenants/{self.uid}/".encode() in environ


def device_ids(device_plugins: Path, pod_uid: str) -> list[str]:
    """What the kubelet's notes say that a pod holds."""
    notes = json.loads((device_plugins / "kubelet_internal_checkpoint").read_text())["Data"]
    return [
        one
        for entry in notes["PodDeviceEntries"] or ()
        if entry["PodUID"] == pod_uid
        for ids in entry["DeviceIDs"].values()
        for one in ids
    ]
