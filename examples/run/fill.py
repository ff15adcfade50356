"""Takes all the memory that the card says it has, and then some: what `aliquot run` answers to that."""
# ruff: noqa: INP001, T201, BLE001 -- a program to read and run, not a module; what it shows is an error

from cuda.bindings import driver
from cuda.core import Device

STEP_MIB = 256
MIB = 1 << 20
GIB = 1 << 30


def size(amount: int) -> str:
    """An amount of memory as `aliquot` writes it."""
    return f"{amount // GIB}Gi" if amount % GIB == 0 else f"{amount // MIB}Mi"


device = Device()
device.set_current()
stream = device.create_stream()
total = driver.cuMemGetInfo()[2]
print(f"the card: {device.name}, {size(total)}", flush=True)

blocks = []
try:
    while len(blocks) * STEP_MIB * MIB <= total:
        blocks.append(device.allocate(STEP_MIB * MIB, stream=stream))
except Exception as error:
    print(f"{size(len(blocks) * STEP_MIB * MIB)} taken, then {str(error).split(':')[0]}")
else:
    print("more memory than the card has was given out")
