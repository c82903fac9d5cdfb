#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs vLLM for a machine with a Hopper GPU (sm_90), Python 3.12, torch and transformers, and no network: `./dev gpu --pack-vllm`.

usage: gpu_vllm_pack.py ROOT [--trim compact|zero|none] [VERSION]
       gpu_vllm_pack.py ROOT --lock [VERSION]     write the lists of packages with checksums anew, from what PyPI has today

Of vLLM's CUDA wheel goes what dense models need, without machine code for other GPUs; with it go the packages that the machine lacks. The
parts are archives in build-gpu-vllm/partN; tests/gpu/vllm_gpu.py unpacks them. The trial unpacks them beside a new environment with what
the machine has, and loads each extension on a driver that finds no device. Nothing of upstream's is kept in the tree.
"""

import argparse
import fnmatch
import glob
import importlib.util
import json
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

DEFAULT_VERSION = "0.32.0"
HEAD = "# SPDX-License-Identifier: Apache-2.0\n#\n# CPython 3.12 on x86_64; scripts/gpu_vllm_pack.py --lock writes this file.\n\n"
PART_BYTES = 50 << 20  # with the tree, whose files take some 12 MiB, 64 MiB travel in one call
SM = 90
MACHINE = ("torch==2.11.0", "transformers==5.17.0")
# Files of vLLM's wheel that no case here loads.
LEFT_OUT = (
    "vllm/vllm-rs", "vllm/third_party/deep_gemm/*", "vllm/third_party/fmha_sm100/*", "*/_vllm_fa2_C*", "vllm/_moe_C*", "vllm/_qutlass_C*",
    "vllm/_deepselect_C*", "vllm/_flashkda_C*", "*/static/*", "*.h", "*.hpp", "*.cuh", "*.json.gz", "vllm/benchmarks/*",
    "vllm/model_executor/layers/*/configs/*",
)
# Of what vLLM asks for: imported by an engine that is started from Python. All else is for servers, other models or other formats.
NEEDED = """aiohappyeyeballs aiohttp aiosignal apache-tvm-ffi astor attrs blake3 cachetools cbor2 charset-normalizer cloudpickle depyf dill
    dnspython einops email-validator fastapi frozenlist googleapis-common-protos httpcore2 httpx2 jiter llguidance msgspec multidict openai
    opentelemetry-api opentelemetry-proto opentelemetry-sdk opentelemetry-semantic-conventions oss-harmony partial-json-parser pillow
    prometheus-fastapi-instrumentator prometheus_client propcache protobuf psutil py-cpuinfo pybase64 pydantic-extra-types
    python-multipart pyzmq requests setproctitle six sniffio starlette truststore urllib3 uvloop vllm xgrammar yarl""".split()

FATBIN_MAGIC, PTX, MACHINE_CODE = 0xBA55ED50, 1, 2


def fatbin_section(data):
    """(offset, size) of .nv_fatbin in a 64-bit ELF file, or None."""
    table, = struct.unpack_from("<Q", data, 40)
    size, count, of_names = struct.unpack_from("<HHH", data, 58)
    heads = [struct.unpack_from("<IIQQQQ", data, table + at * size) for at in range(count)]
    for head in heads:
        name = heads[of_names][4] + head[0]
        if data[name : data.index(0, name)] == b".nv_fatbin":
            return head[4:6]
    return None


def entries(data, at, end):
    """By fatbin the (offset, offset of the code, its end, kind, capability) of each entry. Refuses what it does not know."""
    while at < end:
        if data[at : at + 8] == bytes(8):
            at += 8  # between two of them
            continue
        magic, version, head, size = struct.unpack_from("<IHHQ", data, at)
        if (magic, version, head) != (FATBIN_MAGIC, 1, 16) or at + head + size > end:
            raise SystemExit(f"pack: FAILED, no known fatbin at {at}: magic {magic:#x}, version {version}, header of {head} bytes")
        found, at, last = [], at + head, at + head + size
        while at < last:
            kind, version, head, size = struct.unpack_from("<HHIQ", data, at)
            if kind not in (PTX, MACHINE_CODE) or version != 0x101 or head < 64 or at + head + size > last:
                raise SystemExit(f"pack: FAILED, no known entry at {at}: kind {kind}, version {version:#x}, header of {head} bytes")
            found.append((at, at + head, at + head + size, kind, struct.unpack_from("<I", data, at + 28)[0]))
            at += head + size
        yield found


def trim(data, way):
    """Takes out what a GPU of capability SM does not load: keeps machine code for SM or, without any, the newest PTX up to SM. The file keeps
    its size and each fatbin its place: `compact` moves what is kept to a fatbin's beginning and gives it its new size (a fatbin may not be
    empty: one with nothing for SM keeps an entry without its code), `zero` leaves all entries where they are, without their code. Returns
    the bytes that are kept and those that are not."""
    section = fatbin_section(data)
    kept = gone = 0
    for found in entries(data, section[0], sum(section)) if section else ():
        wanted = [entry for entry in found if entry[3:] == (MACHINE_CODE, SM)]
        wanted = wanted or sorted((entry for entry in found if entry[3] == PTX and entry[4] <= SM), key=lambda entry: entry[4])[-1:]
        begin, end = found[0][0], found[-1][2]
        for _, code, last, *_ in set(found) - set(wanted):
            data[code:last] = bytes(last - code)
            gone += last - code
        if way == "compact":
            body = b"".join(data[entry[0] : entry[2]] for entry in wanted or [min(found, key=lambda entry: entry[2] - entry[0])])
            data[begin:end] = body.ljust(end - begin, b"\0")
            struct.pack_into("<Q", data, begin - 8, len(body))
        kept += sum(entry[2] - entry[1] for entry in wanted)
    return kept, gone


def pip(python, *args):
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", *args], check=True, stdout=sys.stderr)


def lists(root, version):
    return (os.path.join(root, "tests", "gpu", name) for name in (f"vllm-{version}.txt", "machine.txt"))


def lock(root, version, folder):
    spec = importlib.util.spec_from_file_location("lock", os.path.join(root, "tests", "engine", "lock.py"))
    of_engine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(of_engine)
    pip(sys.executable, "download", "--no-deps", "--only-binary", ":all:", "-d", folder, f"vllm=={version}")
    (wheel,) = glob.glob(f"{folder}/vllm-*.whl")
    needed = {name.lower() for name in NEEDED}
    named = [need for need in of_engine.requirements(wheel) if re.split(r"[^\w.-]", need)[0].lower() in needed]
    machine = of_engine.resolve(*MACHINE)
    found = of_engine.resolve(*MACHINE, *named) + of_engine.resolve("--no-deps", f"vllm=={version}")
    wanted = [item for item in found if item[0] in needed and item[0] not in {name for name, _, _ in machine}]
    for path, items in zip(lists(root, version), (wanted, machine)):
        with open(path, "w") as file:
            file.write(HEAD)
            file.writelines(f"{name}=={found} --hash=sha256:{digest}\n" for name, found, digest in sorted(items))


def collect(args, site, folder):
    """Fills @site with the packages, trimmed."""
    needed, _ = lists(args.root, args.version)
    pip(sys.executable, "download", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-d", folder, "-r", needed)
    for wheel in sorted(glob.glob(f"{folder}/*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if not name.endswith("/") and not any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_OUT):
                    archive.extract(name, site)
        os.unlink(wheel)
    for path in sorted(glob.glob(f"{site}/vllm/**/*.so", recursive=True)):
        with open(path, "r+b") as file:
            data = bytearray(file.read())
            if args.trim != "none":
                kept, gone = trim(data, args.trim)
                print(f"  {os.path.basename(path)}: {len(data) / 1e6:.1f} MB, code kept {kept / 1e6:.1f}, taken out {gone / 1e6:.1f}")
                file.seek(0)
                file.write(data)


def archive(site, out):
    """One archive for each group of files, the largest first into parts of at most PART_BYTES."""
    groups = {}
    for at, _, names in os.walk(site):
        for name in names:
            path = os.path.relpath(os.path.join(at, name), site)
            group = "packages" if not path.startswith("vllm") else name.split(".")[0] if name.endswith(".so") else "python-of-vllm"
            groups.setdefault(group, []).append(path)
    made = []
    for group, paths in groups.items():
        target = os.path.join(out, f"{group}.tar.xz")
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 192 << 20 if group == "_vllm_fa3_C" else 32 << 20}]
        with lzma.open(target, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            for path in sorted(paths):
                tar.add(os.path.join(site, path), path)
        made.append((os.path.getsize(target), target, sum(os.path.getsize(os.path.join(site, path)) for path in paths), len(paths)))
    rooms, table = [], ["| part | archive | files | MB | packed MB |", "|---|---|---|---|---|"]
    for size, target, raw, count in sorted(made, reverse=True):
        at = next((at for at, used in enumerate(rooms) if used + size <= PART_BYTES), len(rooms))
        if at == len(rooms):
            rooms.append(0)
        rooms[at] += size
        part = os.path.join(out, f"part{at + 1}")
        os.makedirs(part, exist_ok=True)
        shutil.move(target, part)
        table.append(f"| part{at + 1} | {os.path.basename(target)} | {count} | {raw / 1e6:.1f} | {size / 1e6:.1f} |")
    table += [f"| part{at + 1} | all | | | {used / 1e6:.1f} |" for at, used in enumerate(rooms)]
    with open(os.path.join(out, "table.md"), "w") as file:
        file.write("\n".join(table) + "\n")
    print("\n".join(table), flush=True)
    if max(rooms) > PART_BYTES:
        raise SystemExit(f"pack: FAILED, a part has {max(rooms)} bytes, and {PART_BYTES} travel")


TRIAL = """
import importlib, time
begin = time.monotonic()
import torch, vllm
from vllm.v1.engine.llm_engine import LLMEngine
import vllm.v1.worker.gpu_worker, vllm.v1.worker.gpu_model_runner, vllm.v1.worker.gpu.model_runner
print(f"vLLM {vllm.__version__} with torch {torch.__version__} imports in {time.monotonic() - begin:.0f} s")
for name in EXTENSIONS + ["vllm.model_executor.models." + name for name in ("llama", "gemma3", "deepseek_v2", "llama_eagle")] + [
    "vllm.v1.attention.backends.flash_attn", "vllm.v1.attention.backends.triton_attn", "vllm.v1.attention.backends.mla.triton_mla",
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector",
]:
    importlib.import_module(name)
    print(f"{name} loads")
torch.ops._C.rms_norm, torch.ops._vllm_fa3_C.fwd
"""


def trial(root, out, version):
    """The parts as the machine will use them, beside what the machine has."""
    home = os.path.join(root, "build-gpu-vllm-trial")
    _, machine = lists(root, version)
    python = os.path.join(home, "venv", "bin", "python")
    if not os.path.exists(os.path.join(home, "done")):
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", os.path.join(home, "venv")], check=True)
        pip(python, "install", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", machine)
        open(os.path.join(home, "done"), "w").close()
    site = os.path.join(home, "site")
    shutil.rmtree(site, ignore_errors=True)
    begin = time.monotonic()
    subprocess.run([python, os.path.join(root, "tests", "gpu", "vllm_gpu.py"), "--unpack", out, site], check=True)
    print(f"unpacked in {time.monotonic() - begin:.0f} s", flush=True)
    libraries = sorted(glob.glob(f"{site}/vllm/**/*.so", recursive=True))
    wanted = subprocess.run(["nm", "-D", "--undefined-only", *libraries], check=True, capture_output=True, text=True).stdout
    driver = os.path.join(home, "driver")
    os.makedirs(driver, exist_ok=True)
    with open(os.path.join(driver, "driver.c"), "w") as file:
        file.writelines(f"int {name}(void) {{ return 100; }}\n" for name in sorted({"cuInit", *re.findall(r" (cu[A-Z]\w+)", wanted)}))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", f"{driver}/libcuda.so.1", f"{driver}/driver.c"], check=True)
    names = [os.path.relpath(path, site).split(".")[0].replace(os.sep, ".") for path in libraries]
    env = {**os.environ, "PYTHONPATH": site, "LD_LIBRARY_PATH": driver, "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    subprocess.run([python, "-c", f"EXTENSIONS = {names}\n{TRIAL}"], check=True, env=env)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root")
    parser.add_argument("version", nargs="?", default=DEFAULT_VERSION)
    parser.add_argument("--trim", choices=("compact", "zero", "none"), default="compact")
    parser.add_argument("--lock", action="store_true")
    args = parser.parse_args()
    out = os.path.join(args.root, "build-gpu-vllm")
    with tempfile.TemporaryDirectory(prefix="gpu-vllm-") as folder:
        if args.lock:
            return lock(args.root, args.version, folder)
        if not all(map(os.path.exists, lists(args.root, args.version))):
            raise SystemExit(f"pack: FAILED, tests/gpu has no list of packages for vLLM {args.version}; --lock {args.version} writes it")
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        collect(args, os.path.join(folder, "site"), folder)
        archive(os.path.join(folder, "site"), out)
    trial(args.root, out, args.version)
    print(f"pack: vLLM {args.version}, code for sm_{SM}, trimmed by {args.trim!r}", flush=True)


if __name__ == "__main__":
    main()
