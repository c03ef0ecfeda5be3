"""Break bytes the way that disks, networks and attackers do."""

from __future__ import annotations

import random


def mutate(data: bytes, rng: random.Random) -> bytes:
    mutant = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(mutant)) if mutant else 0
        match rng.randrange(6):
            case 0 if mutant:
                mutant[at] ^= 1 << rng.randrange(8)
            case 1 if mutant:
                mutant[at] = rng.choice((0, 0x7F, 0x80, 0xFF, 0x0A, 0x12))
            case 2:
                del mutant[at:]
            case 3:
                del mutant[at : at + rng.randrange(1, 20)]
            case 4:
                mutant[at:at] = rng.randbytes(rng.randrange(1, 12))
            case _:
                end = at + rng.randrange(1, 40)
                mutant[at:at] = mutant[at:end] * rng.randrange(1, 4)
    return bytes(mutant)
