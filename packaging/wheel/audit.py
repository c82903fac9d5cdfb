#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a wheel must hold to, as TAP: oldest glibc, stable ABI, shared libraries, exported names, GPU code, licences, SBOM, no engine required.

Runs in the environment of the tools (auditwheel, abi3audit, pyelftools). Each figure is in the line of its case.
"""

import argparse
import email
import io
import json
import os
import re
import struct
import subprocess
import sys
import zipfile

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

# What glibc itself consists of. Any other library would have to be on the user's machine.
OF_GLIBC = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
PROGRAMS = ["kvscout", "kvscout-latency", "kvscout-replay", "kvscoutd"]
EXTENSION = "kvscout/_kvscout.abi3.so"
S3 = "kvscout/libkvscout-l2-s3.so"  # opens the libcurl of its host
SIZE_MAX = 8 << 20
PTX = b"\n.version 6.3\n.target sm_75\n"
# One of each major number serves all GPUs from Turing on: {architecture: ABI version of its ELF file}. Drivers before 570 take ABI 7 only, and
# none of them drives a Blackwell.
MACHINE_CODE = {75: 7, 80: 7, 90: 7, 100: 8, 120: 8}


class Elf:
    """What is asked of a binary: needed libraries, versions of glibc, exported names, protections."""

    def __init__(self, data):
        self.data = data
        elf = ELFFile(io.BytesIO(data))
        tags = [t for s in elf.iter_segments("PT_DYNAMIC") for t in s.iter_tags()]
        self.needed = {t.needed for t in tags if t.entry.d_tag == "DT_NEEDED"}
        self.paths = [t.entry.d_tag for t in tags if t.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")]
        flags = [t.entry.d_val for t in tags if t.entry.d_tag == "DT_FLAGS_1"] + [0]
        self.bind_now = bool(flags[0] & 1) or any(t.entry.d_tag == "DT_BIND_NOW" for t in tags)
        self.position_independent = elf.header.e_type == "ET_DYN"
        stack = [s.header.p_flags for s in elf.iter_segments("PT_GNU_STACK")]
        self.stack_executes = not stack or bool(stack[0] & 1)
        self.relro = any(True for _ in elf.iter_segments("PT_GNU_RELRO"))
        self.has_symbols = elf.get_section_by_name(".symtab") is not None
        table = elf.get_section_by_name(".dynsym")
        self.exported = {s.name for s in table.iter_symbols() if s.entry.st_shndx != "SHN_UNDEF" and s.name} if table else set()
        self.glibc = (0, 0)
        for section in elf.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                for _, versions in section.iter_versions():
                    for version in versions:
                        found = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version.name)
                        if found:
                            self.glibc = max(self.glibc, (int(found[1]), int(found[2])))


class Tap:
    def __init__(self):
        self.n = self.bad = 0

    def case(self, name, ok, figure):
        self.n += 1
        self.bad += not ok
        print(f"{'ok' if ok else 'not ok'} {self.n} - {name}: {figure}", flush=True)


def run_tool(*command):
    """(whether it ended well, what it printed)"""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode == 0, done.stdout


def audit_tags(tap, path, glibc):
    ok, text = run_tool("auditwheel", "show", path)
    wanted = re.search(r"manylinux_\d+_\d+_\w+", os.path.basename(path))
    flat = " ".join(text.split())
    found = re.search(r'consistent with the following platform tag: "([^"]*)"', flat)
    tap.case("auditwheel finds the platform of its name", ok and found and wanted and found[1] == wanted[0], found[1] if found else flat)
    ok, text = run_tool("abi3audit", "--strict", "--verbose", path)
    tap.case("abi3audit finds the stable ABI of CPython 3.11 only", ok, " ".join(text.split())[-160:])
    tap.case("its name says cp311, abi3 and that glibc", f"-cp311-abi3-manylinux_{glibc.replace('.', '_')}_" in path, os.path.basename(path))


def audit_binaries(tap, elves, glibc):
    oldest = tuple(int(x) for x in glibc.split("."))
    for name, elf in sorted(elves.items()):
        tap.case(f"{name} needs libraries of glibc only", elf.needed <= OF_GLIBC, " ".join(sorted(elf.needed)))
        tap.case(f"{name} needs no newer glibc than {glibc}", elf.glibc <= oldest, "%d.%d" % elf.glibc)
        tap.case(f"{name} is position-independent, with RELRO, bound at once, its stack not executable, no search path, no symbol table",
                 elf.position_independent and elf.relro and elf.bind_now and not elf.stack_executes and not elf.paths and
                 not elf.has_symbols, f"{len(elf.data)} bytes")
        here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))).encode()
        tap.case(f"{name} names no folder of the machine that built it", here not in elf.data, "")
    exported = elves[EXTENSION].exported
    tap.case("the plugin for S3 exports its entry point and nothing else", elves[S3].exported == {"scout_l2_plugin"}, " ".join(sorted(elves[S3].exported)))
    tap.case("the extension exports its entry point and nothing else", exported == {"PyInit__kvscout"}, " ".join(sorted(exported)))


def machine_codes(data):
    """{architecture: ABI version} of each ELF file for a GPU (e_machine 190) within a binary, as ptxas of CUDA 12 writes it."""
    found, at = {}, data.find(b"\x7fELF", 1)
    while at >= 0:
        if struct.unpack_from("<H", data, at + 18) == (190,):
            flags, = struct.unpack_from("<I", data, at + 48)
            found[(flags if data[at + 8] < 8 else flags >> 8) & 0xff] = data[at + 8]
        at = data.find(b"\x7fELF", at + 1)
    return found


def audit_kernel(tap, data):
    codes = machine_codes(data)
    tap.case("the extension has the GPU's kernel once as PTX that drivers from 525 on take", data.count(PTX) == 1, f"{data.count(PTX)}")
    tap.case("... and as machine code for each kind of GPU, in files that they take", codes == MACHINE_CODE,
             " ".join(f"sm_{arch}" for arch in sorted(codes)))


def audit_contents(tap, files):
    info = next(name for name in files if name.endswith(".dist-info/METADATA")).rpartition("/")[0]
    metadata = email.message_from_bytes(files[f"{info}/METADATA"])
    tap.case("it requires no other distribution", not metadata.get_all("Requires-Dist"), "Requires-Python " + metadata["Requires-Python"])
    missing = [f for f in metadata.get_all("License-File") if f"{info}/licenses/{f}" not in files]
    tap.case("each licence that it names is there", not missing, f"{len(metadata.get_all('License-File'))} files; "
             f"{metadata['License-Expression']}; missing: {missing}")
    sbom = json.loads(files[f"{info}/sboms/kvscout.cdx.json"])
    components = {c["name"]: c for c in sbom["components"]}
    licensed = {f.split("/")[1] for f in metadata.get_all("License-File") if f.startswith("third-parties/")}
    tap.case("the SBOM is CycloneDX and names each third party whose licence is there, with version and purl",
             sbom["bomFormat"] == "CycloneDX" and licensed == set(components) and all(c["purl"] and c["version"] for c in components.values()),
             " ".join(sorted(components)))
    scripts = files[f"{info}/entry_points.txt"].decode()
    tap.case("the programs are console scripts", all(f"{p} = " in scripts.replace("=", " = ").replace("  ", " ") for p in PROGRAMS), ", ".join(PROGRAMS))
    tap.case("type stubs and py.typed are there", "kvscout/py.typed" in files and "kvscout/_kvscout.pyi" in files, "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--glibc", required=True, help="the newest glibc that it may need")
    parser.add_argument("wheel")
    args = parser.parse_args()
    tap = Tap()
    with zipfile.ZipFile(args.wheel) as wheel:
        files = {i.filename: wheel.read(i) for i in wheel.infolist()}
        executable = {i.filename for i in wheel.infolist() if i.external_attr >> 16 & 0o111}
    elves = {name: Elf(data) for name, data in files.items() if data[:4] == b"\x7fELF"}
    expected = {EXTENSION, S3, *(f"kvscout/{p}" for p in PROGRAMS)}
    tap.case("its binaries are the extension, the programs and the plugin for S3", set(elves) == expected, " ".join(sorted(elves)))
    tap.case("the programs are executable", {f"kvscout/{p}" for p in PROGRAMS} <= executable, "")
    size = os.path.getsize(args.wheel)
    tap.case(f"it is not larger than {SIZE_MAX} bytes", size <= SIZE_MAX, f"{size} bytes, {sum(map(len, files.values()))} unpacked")
    audit_tags(tap, args.wheel, args.glibc)
    audit_binaries(tap, elves, args.glibc)
    audit_kernel(tap, elves[EXTENSION].data)
    audit_contents(tap, files)
    print(f"1..{tap.n}")
    return 1 if tap.bad else 0


if __name__ == "__main__":
    sys.exit(main())
