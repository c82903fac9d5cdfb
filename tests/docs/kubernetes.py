#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kubernetes.py FOLDER PLACE KVSCOUTD: the manifests of FOLDER hold to the schemas of Kubernetes, nothing in them is privileged, and
kvscoutd takes its arguments. `./dev test` puts the checker (kubernetes-validate of PyPI) into PLACE. Prints TAP.
"""
import pathlib
import re
import subprocess
import sys

FOLDER, PLACE, KVSCOUTD = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
OLDEST = "1.29"  # containers of initContainers that go on (sidecars) are there without a switch
sys.path[:0] = [str(place) for place in pathlib.Path(PLACE).glob("lib/python3*/site-packages")]
try:
    import kubernetes_validate
    import yaml
except ImportError as missing:
    print(f"1..0 # SKIP no {missing.name}; ./dev test has it from PyPI")
    sys.exit()


def containers(manifest):
    spec = manifest["spec"].get("template", manifest)["spec"] if manifest["kind"] in ("DaemonSet", "Pod") else {}
    return spec, [*spec.get("initContainers", ()), *spec.get("containers", ())]


def schema(manifest):
    if manifest["apiVersion"].split("/")[0] in ("kustomize.config.k8s.io", "monitoring.coreos.com"):
        return  # the schemas are of Kubernetes' own kinds
    kubernetes_validate.validate(manifest, OLDEST, strict=True)


def unprivileged(manifest):
    spec, all_of_it = containers(manifest)
    assert not {"hostIPC", "hostPID", "hostNetwork", "shareProcessNamespace"} & set(spec), "a namespace of the host"
    for container in all_of_it:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False and context["capabilities"] == {"drop": ["ALL"]}, container["name"]
        assert container["image"] != "kvscout" or context["readOnlyRootFilesystem"], container["name"]


def arguments(manifest):
    for container in containers(manifest)[1]:
        if container["image"] == "kvscout" and "args" in container:
            # A pool that no machine has: the last thing that is judged before the server starts.
            tried = subprocess.run([KVSCOUTD, "--listen", "ipc:///tmp/kvscout-manifest/s", *container["args"], "--l1-bytes", "1024Ti"],
                                   capture_output=True, text=True, timeout=60, check=False)
            assert tried.returncode == 2 and re.search(r"l1_bytes.*is larger than", tried.stderr), tried.stderr


def main():
    failed = n = 0
    files = sorted(FOLDER.glob("*.yaml"))
    for path in files:
        for check in (schema, unprivileged, arguments):
            n += 1
            try:
                check(yaml.safe_load(path.read_text()))
                print(f"ok {n} - {path.name}: {check.__name__}")
            except Exception as error:  # noqa: BLE001 each case by itself
                failed += 1
                print(f"not ok {n} - {path.name}: {check.__name__}\n# " + f"{type(error).__name__}: {error}".replace("\n", "\n# "))
    named = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    n += 1
    lost = set(named) - {path.name for path in files}
    failed += bool(lost)
    print(f"{'not ok' if lost else 'ok'} {n} - kustomization.yaml names files that are there {lost or ''}\n1..{n}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
