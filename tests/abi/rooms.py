#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The test of arrows: who stands on whom, and that every arrow points down.

Each folder of the product is a room. ROOMS lists them from the roof to the ground with what each stands on directly; a room may
use these and whatever these stand on. The test reads the sources and the objects that were built from them:

- a file includes files of its own room and of rooms below it; no circle of includes leaves a room;
- a file of client, worker or server includes none of the other two: each is an installed library of its own;
- an object asks for symbols of its own room and of rooms below it, as nm tells; the files of a room call each other in no circle;
- a library holds objects of one room, and its compiler sees no folder but this and those below it;
- a header's name is there once in the whole tree, a struct, enum or union tag once in the product and the tools;
- a room has at most 40 files, a file at most 900 lines, those of the tests too;
- libraries, Python, benchmarks with tools, and tests have at most the lines in all that lines.txt allows them.

Then it plants one fault of each kind and expects to find it. TAP.

usage: rooms.py SOURCE_ROOT BUILD_ROOT          the test
       rooms.py --draw SOURCE_ROOT BUILD_ROOT   the rooms as a table, with the arrows that there are
       rooms.py --lines SOURCE_ROOT             lines.txt, set to the lines that there are
"""

import collections
import json
import os
import re
import subprocess
import sys

MAX_FILES = 40
MAX_LINES = 900

CEILINGS = "tests/abi/lines.txt"
CEILINGS_HEAD = """\
# The most lines (C, Python, scripts, meson.build) of each of four parts of the tree. The test abi_rooms fails above it, and prints the lines
# that there are. A commit that raises a total does nothing else, and names the budget of the work that needs it; any commit may lower one.
# `python3 tests/abi/rooms.py --lines .` prints this file with the lines that there are.
"""
# The parts, each with its folders; the deepest folder decides.
PARTS = {
    "libraries": ("include", "libcommon", "libclient", "libworker", "libserver"),
    "python": ("python",),
    "bench-and-tools": ("bench", "tools"),
    "tests": ("tests", "python/tests"),
}

WINGS = {"libclient", "libworker", "libserver"}
TOOL = ["bench/common"]
ROOMS = {
    "tools": ["tools/common", "libclient", "libserver/daemon"],
    "tools/common": ["libcommon/config"],
    "python/src": ["python/src/worker", "libserver"],
    "python/src/worker": ["python/src/base", "libworker"],
    "python/src/base": ["libclient"],
    "python/bench": ["libclient"],
    "bench/demo": TOOL,
    "bench/replay": TOOL,
    "bench/latency": TOOL,
    "bench/micro": TOOL,
    "bench/copy": ["bench/common", "libworker/copy/cuda"],
    "bench/common": ["tools/common", "libclient", "libworker", "libserver"],
    "libserver/daemon": ["libserver", "libcommon/host"],
    "libserver": ["libserver/ops", "libserver/l2/files", "libserver/l2/plugin", "libserver/l2/redis"],
    "libserver/ops": ["libserver/monitor"],
    "libserver/monitor": ["libserver/tiering", "libserver/http"],
    "libserver/http": ["libserver/core"],
    "libserver/tiering": ["libserver/state", "libserver/l2"],
    "libserver/state": ["libserver/transport", "libserver/l1"],
    "libserver/transport": ["libserver/core"],
    "libserver/core": ["libcommon/wire", "libcommon/config"],
    "libworker": ["libworker/jobs"],
    "libworker/jobs": ["libcommon/courier", "libcommon/config", "libworker/copy/cuda"],
    "libserver/l2/s3": ["libcommon/base"],
    "libserver/l2/redis": ["libserver/l2"],
    "libserver/l2/files": ["libserver/l2/blocking"],
    "libserver/l2/plugin": ["libserver/l2/blocking"],
    "libserver/l2/blocking": ["libserver/l2"],
    "libserver/l2": ["libcommon/wire", "libcommon/config"],
    "libserver/l1": ["libserver/l1/evict"],
    "libserver/l1/evict": ["libcommon/base"],
    "libworker/copy/cuda": ["libworker/copy"],
    "libworker/copy": ["libcommon/base"],
    "libclient": ["libclient/background", "libclient/hash"],
    "libclient/background": ["libcommon/courier", "libcommon/config"],
    "libcommon/courier": ["libcommon/wire", "libcommon/host"],
    "libcommon/host": ["libcommon/base"],
    "libclient/hash": ["libcommon/base"],
    "libcommon/config": ["libcommon/base"],
    "libcommon/wire": ["libcommon/base"],
    "libcommon/base": ["include/kvscout"],
    "include/kvscout": [],
}

# What is allowed all the same: a finding in its words, and why.
EXCEPTIONS = {
}

# Circles of calls that stay inside a room: how many files each has at most, and why it is not cut.
KNOTS = {
    "libserver/monitor": (2, "the endpoint starts and stops its HTTP half, and that asks it for the text of each answer"),
    "libserver/tiering": (5, "l2_tier.c hands each turn to loads, writes and records, and these unpin and remove through it"),
    "libserver/state": (6, "a namespace, a peer, a session and a hold end what hangs on them, each from its own end"),
    "libserver/transport": (3, "a frame from the shared memory becomes a packet as one from the socket does, and packet.c asks for both"),
}

# Headers that the build writes.
GENERATED = {"revision.h", "cuda_kernel_image.inc", "copy_kernels_image.inc", "web_page.inc"}

COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|<(kvscout/[^>]+)>)', re.M)
TAG = re.compile(r"\b(?:struct|enum|union)\s+([A-Za-z_]\w*)\s*\{")

Object = collections.namedtuple("Object", "source target sees defined wanted")


class Tree:
    """Sources by path, and what was built from them."""

    def __init__(self, root, build):
        self.texts = {}
        self.files = collections.defaultdict(list)
        self.tests = {}  # lines by path
        self.lines = collections.Counter()  # by part
        self.ceilings = ceilings_of(root)
        for top in ("include", "libcommon", "libclient", "libworker", "libserver", "bench", "tools", "python", "tests"):
            for folder, folders, names in os.walk(os.path.join(root, top)):
                folders[:] = [name for name in folders if name not in ("corpus", "__pycache__")]
                room = os.path.relpath(folder, root)
                for name in names:
                    path = room + "/" + name
                    if name.endswith((".c", ".h", ".cu", ".py", ".pyi", ".sh", ".map", ".build")) and not name.endswith("_vectors.h"):
                        with open(os.path.join(root, path), encoding="utf-8") as file:
                            self.lines[part_of(room)] += file.read().count("\n")
                    if top == "tests":
                        if not name.endswith(("_vectors.h", ".pyc", ".abi")):
                            with open(os.path.join(root, path), encoding="utf-8") as file:
                                self.tests[path] = file.read().count("\n")
                        continue
                    self.files[room].append(name)
                    if name.endswith((".c", ".h", ".cu")):
                        with open(os.path.join(root, path), encoding="utf-8") as file:
                            self.texts[path] = file.read()
        self.objects = objects_of(root, build) if build else []


def ceilings_of(root):
    with open(os.path.join(root, CEILINGS), encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return {part: int(lines) for lines, part in rows}


def part_of(room):
    """The name in PARTS whose folder is the deepest one above @room."""
    folders = [(folder, part) for part, found in PARTS.items() for folder in found if (room + "/").startswith(folder + "/")]
    return max(folders)[1]


def room_of(path):
    return os.path.dirname(path)


def objects_of(root, build):
    """What the objects of the product and the tools define and ask for; tests compile some of the sources once more."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    found = {}
    tool = "nm"
    for entry in commands:
        output = entry.get("output", "")
        if output.startswith(("libcommon/", "libclient/", "libworker/", "libserver/", "bench/", "tools/", "python/")):
            source = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root)
            sees = {os.path.relpath(os.path.join(build, folder), root) for folder in re.findall(r"(?<=-I)\S+", entry["command"])}
            if not source.startswith(".."):
                found[os.path.join(build, output)] = Object(source, os.path.dirname(output)[:-2], sees, set(), set())
            if "-flto" in entry["command"]:
                tool = "gcc-nm"
    missing = [path for path in found if not os.path.exists(path)]
    if missing or not found:
        sys.exit(f"not built: {(missing or ['anything'])[0]}; build everything first")
    text = subprocess.run([tool, "-g", "-A", "-P", *found], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        path, _, rest = line.partition(": ")
        name, kind = rest.split()[:2]
        (found[path].wanted if kind in "Uvw" else found[path].defined).add(name)
    return list(found.values())


def below(room, arrows=None):
    """All rooms that `room` may use, itself included."""
    reached = {room}
    ahead = [room]
    while ahead:
        for other in (arrows or ROOMS).get(ahead.pop(), []):
            if other not in reached:
                reached.add(other)
                ahead.append(other)
    return reached


def includes_of(tree):
    """(file, file) for each include of a file of the tree, and the names that are not there."""
    by_name = {os.path.basename(path): path for path in tree.texts if path.endswith(".h")}
    arrows, unknown = [], []
    for path, text in tree.texts.items():
        for quoted, public in INCLUDE.findall(text):
            if public:
                target = "include/" + public
            else:
                near = room_of(path) + "/" + quoted
                target = near if near in tree.texts else by_name.get(quoted)
            if target in tree.texts:
                arrows.append((path, target))
            elif os.path.basename(quoted or public) not in GENERATED:
                unknown.append((path, quoted or public))
    return arrows, unknown


def circles(arrows):
    """The groups of nodes that reach each other."""
    after = collections.defaultdict(set)
    before = collections.defaultdict(set)
    for a, b in arrows:
        after[a].add(b)
        before[b].add(a)
    order, seen = [], set()
    for start in list(after):
        stack = [(start, iter(after[start]))] if start not in seen else []
        seen.add(start)
        while stack:
            node, rest = stack[-1]
            following = next((n for n in rest if n not in seen), None)
            if following is None:
                order.append(stack.pop()[0])
            else:
                seen.add(following)
                stack.append((following, iter(after[following])))
    groups, taken = [], set()
    for start in reversed(order):
        group, ahead = set(), [start]
        while ahead:
            node = ahead.pop()
            if node not in taken:
                taken.add(node)
                group.add(node)
                ahead += before[node]
        if len(group) > 1:
            groups.append(group)
    return groups


def module(path):
    """A .c file and its header are one."""
    return os.path.splitext(path)[0]


# ---- the rules: each yields what breaks it ---------------------------------------------------------------------------


def every_folder_is_a_room_of_the_table(tree):
    for room in sorted(tree.files):
        if any(path.startswith(room + "/") and room_of(path) == room for path in tree.texts) and room not in ROOMS:
            yield f"{room} is no room"


def includes_point_down(tree):
    arrows, unknown = includes_of(tree)
    for path, target in arrows:
        if room_of(target) not in below(room_of(path)):
            yield f"{path} includes {target}"
    for path, name in unknown:
        yield f"{path} includes {name}, which is nowhere"


def wings_know_nothing_of_each_other(tree):
    for path, target in includes_of(tree)[0]:
        wings = {path.split("/")[0], target.split("/")[0]}
        if len(wings & WINGS) > 1:
            yield f"{path} includes {target} of another library"


def no_circle_of_files_leaves_a_room(tree):
    arrows = {(module(a), module(b)) for a, b in includes_of(tree)[0] if module(a) != module(b)}
    for group in circles(arrows):
        if len({room_of(path) for path in group}) > 1:
            yield "circle: " + " ".join(sorted(group))


def symbols_point_down(tree):
    homes = collections.defaultdict(set)
    for built in tree.objects:
        for name in built.defined:
            homes[name].add(room_of(built.source))
    for built in tree.objects:
        mine = below(room_of(built.source))
        for name in sorted(built.wanted):
            if name in homes and not homes[name] & mine:
                yield f"{built.source} asks for {name} of {sorted(homes[name])[0]}"


def calls(tree):
    """(module, module) for each symbol that an object asks another one for."""
    homes = {name: module(built.source) for built in tree.objects for name in built.defined if name != "main"}
    arrows = {(module(built.source), homes[name]) for built in tree.objects for name in built.wanted if name in homes}
    return {(a, b) for a, b in arrows if a != b}


def no_circle_of_calls(tree):
    for group in circles(calls(tree)):
        rooms = {room_of(path) for path in group}
        if len(rooms) > 1 or len(group) > KNOTS.get(min(rooms), (0,))[0]:
            yield "calls: " + " ".join(sorted(group))


def libraries_are_of_one_room(tree):
    rooms = collections.defaultdict(set)
    climbs = set()
    folders = {room_of(path) for path in tree.texts}
    for built in tree.objects:
        rooms[built.target].add(room_of(built.source))
        for folder in built.sees & folders - below(room_of(built.source)):
            climbs.add((built.target, folder))
    for target, folder in sorted(climbs):
        yield f"{target} is compiled with {folder} in sight"
    for target, members in sorted(rooms.items()):
        if len(members) > 1:
            yield f"{target} has objects of {' '.join(sorted(members))}"


def header_names_are_unique(tree):
    seen = {}
    for path in sorted(list(tree.texts) + list(tree.tests)):
        name = os.path.basename(path)
        if name.endswith(".h"):
            if name in seen:
                yield f"{seen[name]} and {path}"
            seen[name] = path


def a_tag_names_one_thing(tree):
    seen = collections.defaultdict(list)
    for path in sorted(tree.texts):
        for tag in TAG.findall(COMMENT_OR_STRING.sub(" ", tree.texts[path])):
            seen[tag].append(path)
    for tag, paths in sorted(seen.items()):
        if len(paths) > 1:
            yield f"tag {tag}: {' '.join(paths)}"


def rooms_and_files_are_small(tree):
    files = {room: len(names) for room, names in tree.files.items()} | collections.Counter(map(room_of, tree.tests))
    for room, n in sorted(files.items()):
        if n > MAX_FILES:
            yield f"{room} has more than {MAX_FILES} files"
    lines = {path: text.count("\n") for path, text in tree.texts.items()} | tree.tests
    for path, n in sorted(lines.items()):
        if n > MAX_LINES:
            yield f"{path} has more than {MAX_LINES} lines"


def no_part_is_above_its_total(tree):
    if set(tree.ceilings) != set(PARTS):
        yield f"{CEILINGS} has the rows {' '.join(sorted(tree.ceilings))}, and should have {' '.join(sorted(PARTS))}"
        return
    for part, lines in sorted(tree.lines.items()):
        if lines > tree.ceilings[part]:
            yield f"{part}: {lines} lines, {lines - tree.ceilings[part]} more than the {tree.ceilings[part]} that {CEILINGS} allows"


RULES = [every_folder_is_a_room_of_the_table, includes_point_down, wings_know_nothing_of_each_other, no_circle_of_files_leaves_a_room,
         symbols_point_down, no_circle_of_calls, libraries_are_of_one_room, header_names_are_unique, a_tag_names_one_thing, rooms_and_files_are_small,
         no_part_is_above_its_total]


# ---- plants ----------------------------------------------------------------------------------------------------------


def with_text(tree, path, text):
    tree.texts[path] = tree.texts.get(path, "") + text


def plants():
    """name: the rule that must find it, and what plants it."""
    return {
        "a climb by an include": (includes_point_down, lambda t: with_text(
            t, "libcommon/wire/wire.h", '#include "courier.h"\n')),
        "a sideways include": (includes_point_down, lambda t: with_text(
            t, "libclient/hash/cbor.c", '#include "wire.h"\n')),
        "an include of another library": (wings_know_nothing_of_each_other, lambda t: with_text(
            t, "libworker/jobs/numa.c", '#include "pool.h"\n')),
        "a header that is not there": (includes_point_down, lambda t: with_text(
            t, "libclient/hash/cbor.c", '#include "nowhere.h"\n')),
        "a climb by a symbol": (symbols_point_down, lambda t: t.objects.append(
            Object("libcommon/base/planted.c", "planted.a", set(), set(), {"scout_client_new"}))),
        "a circle of calls": (no_circle_of_calls, lambda t: t.objects.extend(
            Object(f"libcommon/wire/planted_{a}.c", "planted.a", set(), {"planted_" + a}, {"planted_" + b}) for a, b in ("xy", "yx"))),
        "a library of two rooms": (libraries_are_of_one_room, lambda t: t.objects.extend(
            Object(f"libcommon/{room}/planted.c", "planted.a", set(), set(), set()) for room in ("base", "wire"))),
        "a room that sees a higher one": (libraries_are_of_one_room, lambda t: t.objects.append(
            Object("libcommon/base/planted.c", "planted.a", {"libcommon/wire"}, set(), set()))),
        "a circle through two rooms": (no_circle_of_files_leaves_a_room, lambda t: with_text(
            t, "libcommon/base/log.h", '#include "wire.h"\n') or with_text(t, "libcommon/wire/wire.h", '#include "log.h"\n')),
        "a header's name twice": (header_names_are_unique, lambda t: with_text(t, "bench/micro/log.h", "")),
        "a tag twice": (a_tag_names_one_thing, lambda t: with_text(
            t, "bench/micro/planted.c", "struct planted {\n\tint a;\n};\n") or with_text(
            t, "libcommon/wire/planted.c", "enum planted { PLANTED };\n")),
        "a room that the table lacks": (every_folder_is_a_room_of_the_table, lambda t: (
            with_text(t, "libclient/planted/a.c", ""), t.files["libclient/planted"].append("a.c"))),
        "a room of 41 files": (rooms_and_files_are_small, lambda t: t.files["libclient/hash"].extend(
            f"planted{i}.c" for i in range(MAX_FILES))),
        "a file of 901 lines": (rooms_and_files_are_small, lambda t: with_text(
            t, "libclient/hash/planted.c", "\n" * (MAX_LINES + 1))),
        "a line above a total": (no_part_is_above_its_total, lambda t: t.lines.update(
            {"libraries": t.ceilings["libraries"] - t.lines["libraries"] + 1})),
        "a total that is missing": (no_part_is_above_its_total, lambda t: t.ceilings.pop("python")),
    }


def copy_of(tree):
    """What a plant may change."""
    copied = object.__new__(Tree)
    copied.texts = dict(tree.texts)
    copied.files = collections.defaultdict(list, {room: list(names) for room, names in tree.files.items()})
    copied.tests = dict(tree.tests)
    copied.lines = collections.Counter(tree.lines)
    copied.ceilings = dict(tree.ceilings)
    copied.objects = list(tree.objects)
    return copied


# ---- what it prints --------------------------------------------------------------------------------------------------


def knots(tree):
    """For each room the largest group of its modules that use each other in a circle, by symbols: (modules, lines)."""
    worst = collections.defaultdict(lambda: (0, 0))
    for group in circles(calls(tree)):
        for room in {room_of(path) for path in group}:
            lines = sum(text.count("\n") for path, text in tree.texts.items() if module(path) in group)
            worst[room] = max(worst[room], (len(group), lines))
    return worst


def draw(tree):
    used = collections.defaultdict(set)
    for path, target in includes_of(tree)[0]:
        if room_of(path) != room_of(target):
            used[room_of(path)].add(room_of(target))
    rooms = [room for room in ROOMS if any(room_of(path) == room for path in tree.texts)]
    rooms += sorted({room_of(path) for path in tree.texts} - set(ROOMS))
    worst = knots(tree)
    print("| room | files | lines | largest knot | stands on |\n|---|---|---|---|---|")
    for room in rooms:
        paths = [path for path in tree.texts if room_of(path) == room]
        lines = sum(tree.texts[path].count("\n") for path in paths)
        # An arrow that another arrow implies is not drawn.
        direct = {other for other in used[room] if not any(other in below(via, used) for via in used[room] - {other})}
        knot = f"{worst[room][0]} files, {worst[room][1]} lines" if worst[room][0] else ""
        names = ", ".join(f"`{other}`" for other in rooms if other in direct)
        print(f"| `{room}` | {len(paths)} | {lines} | {knot} | {names} |")
    print(f"\n{len(rooms)} rooms, {len(tree.texts)} files, {sum(text.count(chr(10)) for text in tree.texts.values())} lines")


def main():
    options = [arg for arg in sys.argv[1:] if arg.startswith("--")]
    root, build = ([os.path.abspath(arg) for arg in sys.argv[1:] if not arg.startswith("--")] + [None])[:2]
    tree = Tree(root, build)
    if "--lines" in options:
        print(CEILINGS_HEAD, end="")
        for part, lines in sorted(tree.lines.items()):
            print(f"{lines:6} {part}")
        return 0
    if "--draw" in options:
        draw(tree)
        return 0
    failed = 0
    results = []
    used = set()
    for rule in RULES:
        bad = list(rule(tree))
        used |= set(bad) & set(EXCEPTIONS)
        bad = [finding for finding in bad if finding not in EXCEPTIONS]
        results.append((rule.__name__, bad))
    # A build without a dependency lacks files, and with them circles.
    complete = set(KNOTS) - {room_of(path) for path in set(tree.texts) - {built.source for built in tree.objects} if path.endswith(".c")}
    knotted = {room_of(path) for group in circles(calls(tree)) for path in group}
    results.append(("every_exception_is_needed", sorted(set(EXCEPTIONS) - used) + [
        f"KNOTS: {room} has no circle any more" for room in sorted(complete - knotted)]))
    for name, (rule, plant) in plants().items():
        planted = copy_of(tree)
        plant(planted)
        found = set(rule(planted)) - set(rule(tree))
        results.append(("found: " + name, [] if found else ["not found"]))
    print(f"1..{len(results)}")
    for number, (name, bad) in enumerate(results, 1):
        for finding in bad:
            print(f"# {finding}")
        print(f"{'not ok' if bad else 'ok'} {number} - {name}")
        failed += bool(bad)
    if failed:
        print("# tests/abi/rooms.py says what may stand on what; an exception needs its reason there.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
