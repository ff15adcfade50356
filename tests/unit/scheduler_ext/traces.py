"""Small synthetic traces in the columns of the real ones."""

import random
from pathlib import Path

SHARES = ((810, 3000), (470, 8000), (320, 4000), (190, 2000))
"""gpu_milli and cpu_milli of pods that share a card."""


def write_nodes(path: Path, count: int = 24) -> Path:
    """Nodes of 8 cards with little CPU, and of 2 with much."""
    rows = ["sn,cpu_milli,memory_mib,gpu,model"]
    rows += [f"n{n},96000,393216,8,G2" if n % 3 else f"n{n},104000,524288,2,T4" for n in range(count)]
    path.write_text("\n".join(rows) + "\n")
    return path


def write_pods(path: Path, count: int = 200, seed: int = 7, spec: float = 0.2) -> Path:
    """Shares, whole cards, pods of 8 cards, and pods without any; a part of them names a model."""
    dice = random.Random(seed)
    rows = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"]
    for n in range(count):
        model = "T4" if dice.random() < spec else ""
        kind = dice.random()
        if kind < 0.5:
            milli, cpu = dice.choice(SHARES)
            rows.append(f"p{n},{cpu},8192,1,{milli},{model}")
        elif kind < 0.88:
            rows.append(f"p{n},{dice.choice([3000, 11000, 18000])},16384,1,1000,{model}")
        elif kind < 0.9:
            rows.append(f"p{n},64000,65536,8,1000,")
        else:
            rows.append(f"p{n},12000,30000,0,0,")
    path.write_text("\n".join(rows) + "\n")
    return path
