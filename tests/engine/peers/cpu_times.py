# SPDX-License-Identifier: Apache-2.0
"""CPU time of processes and threads, from /proc."""

import os

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def _stat(path):
    """(name, parent, user seconds, system seconds), or None if it has ended."""
    try:
        with open(f"{path}/stat") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    return name, int(fields[1]), int(fields[11]) * TICK_S, int(fields[12]) * TICK_S


def tree(roots):
    """Process ids of @roots and of all their descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            found = _stat(f"/proc/{entry}")
            if found is not None:
                children.setdefault(found[1], []).append(int(entry))
    result, left = [], list(roots)
    while left:
        pid = left.pop()
        result.append(pid)
        left.extend(children.get(pid, ()))
    return result


def threads(pids):
    """{(process, thread, name): (user seconds, system seconds)}."""
    result = {}
    for pid in pids:
        try:
            ids = os.listdir(f"/proc/{pid}/task")
        except (FileNotFoundError, ProcessLookupError):
            continue
        for thread in ids:
            found = _stat(f"/proc/{pid}/task/{thread}")
            if found is not None:
                result[pid, int(thread), found[0]] = found[2:]
    return result


def used(before, after):
    """[(process, thread, name, user seconds, system seconds)] between two calls of threads(), the busiest first."""
    rows = []
    for key, (user, system) in after.items():
        old = before.get(key, (0.0, 0.0))
        if user + system > sum(old):
            rows.append((*key, user - old[0], system - old[1]))
    return sorted(rows, key=lambda row: -row[3] - row[4])


def allowed(thread):
    """Numbers of the CPUs that a thread may run on; none if it has ended."""
    try:
        return sorted(os.sched_getaffinity(thread))
    except ProcessLookupError:
        return []


def model():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown CPU")
