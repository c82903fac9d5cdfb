#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Give the wheel that meson-python built what its dist-info needs: the third parties' licences, an SBOM, the tag of its glibc.

The SBOM is CycloneDX 1.6 in dist-info/sboms (PEP 770), one component for each third party in the binaries. The same input gives the
same bytes: entries are sorted and carry one date.
"""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import re
import sys
import zipfile

# Directory below --third: licence as an SPDX expression, its texts, what is in the wheel.
THIRD_PARTIES = {
    "zeromq3": ("LGPL-3.0-or-later", "COPYING.LESSER COPYING", "libzmq: inproc, ipc, tcp, CURVE; with its exception for static linking"),
    "libsodium": ("ISC", "LICENSE", "the primitives of CURVE"),
    "ck": ("BSD-2-Clause", "LICENSE", "concurrencykit: the ring, from its headers"),
    "xxhash": ("BSD-2-Clause", "LICENSE", "XXH3"),
    "hiredis": ("BSD-3-Clause", "COPYING", "the client of Redis, without its asynchronous API"),
    "libmicrohttpd": ("LGPL-2.1-or-later OR GPL-2.0-or-later WITH eCos-exception-2.0", "COPYING", "the server of /metrics"),
    "jansson": ("MIT", "LICENSE", "JSON of the tools"),
    "openssl": ("Apache-2.0", "LICENSE.txt", "SHA-256 of libcrypto alone"),
}
# Below the folder of zig: C++ library, unwinder, and the start files and runtime that the compiler links.
COMPILER_PARTS = {
    "libc++": ("Apache-2.0 WITH LLVM-exception", "lib/libcxx/LICENSE.TXT"),
    "libc++abi": ("Apache-2.0 WITH LLVM-exception", "lib/libcxxabi/LICENSE.TXT"),
    "libunwind": ("Apache-2.0 WITH LLVM-exception", "lib/libunwind/LICENSE.TXT"),
    "zig-compiler-rt": ("MIT", "LICENSE"),
}
DATE = (2020, 2, 2, 0, 0, 0)  # zip knows no date before 1980; any constant will do


def read_sources(path):
    """{directory: (version of the Debian package, SHA-256 of its .dsc)}"""
    sources = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, dsc, digest = line.split()
            sources[name] = (re.fullmatch(r".*_(.+)\.dsc", dsc)[1], digest)
    return sources


def read_third_parties(args):
    """Components of the SBOM, and {path in dist-info/licenses: text}."""
    components, texts = [], {}
    for name, (version, digest) in sorted(read_sources(args.sources).items()):
        licence, files, part = THIRD_PARTIES[name]
        for file in files.split():
            texts[f"third-parties/{name}/{file}"] = (args.third / name / file).read_bytes()
        components.append({
            "type": "library", "bom-ref": name, "name": name, "version": version, "description": part, "scope": "required",
            "hashes": [{"alg": "SHA-256", "content": digest}], "licenses": [{"expression": licence}],
            "purl": f"pkg:deb/debian/{name}@{version}?arch=source&distro=bookworm",
            "properties": [{"name": "kvscout:hash-of", "value": "the .dsc of the source package"},
                           {"name": "kvscout:linkage", "value": "static"}]})
    zig_version = next(args.zig.parent.glob("ziglang-*.dist-info")).name.removeprefix("ziglang-").removesuffix(".dist-info")
    for name, (licence, file) in COMPILER_PARTS.items():
        texts[f"third-parties/{name}/{os.path.basename(file)}"] = (args.zig / file).read_bytes()
        components.append({
            "type": "library", "bom-ref": name, "name": name, "version": f"of ziglang {zig_version}", "scope": "required",
            "licenses": [{"expression": licence}], "purl": f"pkg:pypi/ziglang@{zig_version}",
            "properties": [{"name": "kvscout:linkage", "value": "static"}]})
    return components, texts


def make_sbom(name, version, components):
    me = {"type": "library", "bom-ref": name, "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}",
          "licenses": [{"expression": "Apache-2.0"}]}
    sbom = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": me},
            "components": components,
            "dependencies": [{"ref": name, "dependsOn": [c["bom-ref"] for c in components]}]}
    return json.dumps(sbom, indent=1).encode() + b"\n"


def whole_licence(components):
    """SPDX expression of all that the wheel contains."""
    parts = {"Apache-2.0"}
    for component in components:
        expression = component["licenses"][0]["expression"]
        parts.add(f"({expression})" if " OR " in expression else expression)
    return " AND ".join(sorted(parts))


def edit_metadata(text, licence, files):
    head, _, body = text.partition("\n\n")
    head = re.sub(r"^License-Expression: .*$", f"License-Expression: {licence}", head, flags=re.M)
    head = re.sub(r"((?:^License-File: .*\n)+)", lambda m: m[1] + "".join(f"License-File: {f}\n" for f in files), head + "\n", flags=re.M)
    return head.rstrip("\n") + "\n\n" + body


def edit_tag(text, platform):
    """The WHEEL file with the platform, and the tag that it says then."""
    tags = re.findall(r"^Tag: (.*)$", text, flags=re.M)
    if len(tags) != 1:
        sys.exit(f"finish.py: one tag was expected, not {tags}")
    tag = "-".join(tags[0].split("-")[:2] + [platform])
    return text.replace(f"Tag: {tags[0]}", f"Tag: {tag}"), tag


def record_line(path, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--third", type=pathlib.Path, required=True, help="folder of the unpacked source packages")
    parser.add_argument("--sources", type=pathlib.Path, required=True, help="the list of source packages")
    parser.add_argument("--zig", type=pathlib.Path, required=True, help="folder of the compiler")
    parser.add_argument("--platform", required=True, help="platform tag")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("wheel", type=pathlib.Path)
    args = parser.parse_args()

    with zipfile.ZipFile(args.wheel) as wheel:
        entries = {i.filename: (wheel.read(i), i.external_attr) for i in wheel.infolist() if not i.is_dir()}
    info = next(name for name in entries if name.endswith(".dist-info/WHEEL")).rpartition("/")[0]
    name, version = info.removesuffix(".dist-info").split("-")
    components, texts = read_third_parties(args)
    plain = 0o100644 << 16
    for path, data in texts.items():
        entries[f"{info}/licenses/{path}"] = (data, plain)
    entries[f"{info}/sboms/{name}.cdx.json"] = (make_sbom(name, version, components), plain)
    metadata = edit_metadata(entries[f"{info}/METADATA"][0].decode(), whole_licence(components), sorted(texts))
    entries[f"{info}/METADATA"] = (metadata.encode(), plain)
    text, tag = edit_tag(entries[f"{info}/WHEEL"][0].decode(), args.platform)
    entries[f"{info}/WHEEL"] = (text.encode(), plain)
    del entries[f"{info}/RECORD"]

    record = "".join(record_line(path, entries[path][0]) for path in sorted(entries)) + f"{info}/RECORD,,\n"
    out = args.out / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for path, (data, mode) in sorted(entries.items()) + [(f"{info}/RECORD", (record.encode(), plain))]:
            entry = zipfile.ZipInfo(path, DATE)
            entry.external_attr, entry.compress_type = mode, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    print(out)


if __name__ == "__main__":
    main()
