# SPDX-License-Identifier: Apache-2.0
"""What the sweep of a worker's copies measures, the most telling first."""

import dataclasses

KI, MI = 1 << 10, 1 << 20
COURSES = ("load", "store")
LOADS = ("product", "attention")


@dataclasses.dataclass(frozen=True)
class Point:
    """@beside: measured beside the loads, too. @total: bytes of one copy; 0: as all others. @huge: the pool has huge pages."""

    part: str
    piece: int = 0
    slot: int = 0
    method: str = "auto"
    stage: int = 128 * MI
    beside: bool = True
    total: int = 0
    huge: bool = False

    @property
    def planes(self):
        return -(-max(1, round(self.slot / self.piece)) // 16)

    @property
    def chunk_blocks(self):
        return max(1, round(self.slot / self.piece / self.planes))

    @property
    def slot_bytes(self):
        return self.piece * self.planes * self.chunk_blocks

    def same_server(self, other):
        return (self.piece, self.slot, self.total, self.huge) == (other.piece, other.slot, other.total, other.huge)

    @property
    def has_goal(self):
        return self.method == "auto" and self == Point(self.part, self.piece, self.slot, beside=self.beside)


PIECES = (18 * KI, 8 * KI, 64 * KI, 640 * KI)
SLOTS = (1 * MI, round(0.2 * MI), 5 * MI, 32 * MI)


def plan(parts, small):
    """Points of one layout stand together within a part: a new layout starts a new server. Small pages have no room for large slots."""
    usual = (18 * KI, 1 * MI)
    layouts = [(piece, slot) for piece in PIECES for slot in SLOTS if piece <= slot]
    points = [Point("layouts"), Point("floor")]
    points += [Point("auto", *layout) for layout in (usual, (64 * KI, 5 * MI), (8 * KI, round(0.2 * MI)), (640 * KI, 32 * MI))]
    points += [Point("pool", 32 * MI, 32 * MI, "batch", beside=False, huge=huge) for huge in (False, True)]
    points += [Point("pool", *usual, beside=False, total=total * MI) for total in (64, 1024)]
    points += [Point("kernels", *usual, method) for method in ("staged", "batch")]
    points += [Point("stage", *usual, "staged", stage=stage) for stage in (32 * MI, 64 * MI, 256 * MI)]
    points += [Point("methods", *layout, method, beside=False) for layout in layouts for method in ("staged", "batch")]
    points += [Point("rest", *layout) for layout in layouts if layout not in {(p.piece, p.slot) for p in points if p.part == "auto"}]
    points += [Point("rest", *layout, "staged") for layout in layouts]
    points = [point for point in points if not parts or point.part in parts]
    return [point for point in points if not (small and (point.slot > 1 * MI or point.total))]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes of one copy, of the largest one, of the pages, and how long a load runs in a round."""

    total: int
    most: int
    pages: int
    window_ms: float


USUAL, SMALL = Sizes(512 * MI, 1024 * MI, 4096 * MI, 120), Sizes(2 * MI, 2 * MI, 16 * MI, 10)


def size(n):
    return f"{n / MI:.3g} MiB" if n >= MI / 8 and n % (64 * KI) or n >= MI else f"{n / KI:.3g} KiB"


def describe_point(point):
    if not point.piece:
        return {"layouts": "attention on both layouts", "floor": "one contiguous copy after the other"}[point.part]
    return (
        f"{point.part}, {size(point.piece)} in slots of {size(point.slot)}, {point.method}, "
        f"stage {size(point.stage)}" + (f", {size(point.total)} at once" if point.total else "") + (", huge pages" if point.huge else "")
    )
