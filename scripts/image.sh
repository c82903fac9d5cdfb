# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# `./dev image`: builds the image of packaging/container from the wheel, and tries it as a container runtime runs it: namespaces and a memory
# cgroup of its own, a root that is read-only, a user without rights, no capability. No registry is needed: Debian's packages make the
# base, unless KVSCOUT_IMAGE_BASE names one that buildah may pull. `dev` sources this file after wheel.sh; all that it makes lies in
# build-image/.

IMAGE=$ROOT/build-image
WHEEL_COUNTS=$IMAGE/counts
IMAGE_SUITE=bookworm
# Debian's own slim image leaves these out, too.
IMAGE_WITHOUT='--dpkgopt=path-exclude=/usr/share/man/* --dpkgopt=path-exclude=/usr/share/locale/* --dpkgopt=path-exclude=/usr/share/doc/*
	--dpkgopt=path-include=/usr/share/doc/*/copyright'

image_tool()
{
	buildah --storage-driver vfs --root "$IMAGE/store" --runroot "$IMAGE/run" "$@"
}

image_base()
{
	image_tool inspect --type image localhost/kvscout-base >/dev/null 2>&1 && return
	# shellcheck disable=SC2086 # a list of options
	mmdebstrap --variant=minbase $IMAGE_WITHOUT $IMAGE_SUITE "$IMAGE/base.tar" || return 1
	ib_container=$(image_tool from scratch) && image_tool add -q "$ib_container" "$IMAGE/base.tar" &&
		image_tool commit -q --rm "$ib_container" localhost/kvscout-base
	rm -f "$IMAGE/base.tar"
}

image_build()
{
	image_tool rm --all >/dev/null
	image_tool bud --isolation chroot --build-arg "BASE=${KVSCOUT_IMAGE_BASE:-localhost/kvscout-base}" -t kvscout \
		-f "$ROOT/packaging/container/Containerfile" "$WHEEL/dist" || return 1
	image_tool rmi --prune || say "an image of an earlier run stays"
}

# in_image NAMESPACES COMMAND...: as a container. The shell that starts it becomes the container's first process.
# shellcheck disable=SC2016 # the inner shell expands them
in_image()
{
	ii_spaces=$1
	shift
	# shellcheck disable=SC2086 # lists of words
	set -- $ii_spaces sh -c 'root=$1 shared=$2 && shift 2 && mount --bind "$root" "$root" && mount -o remount,bind,ro "$root" &&
		mount --bind "$shared" "$root/run/kvscout" && mount -t proc proc "$root/proc" &&
		exec chroot "$root" setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"' \
		sh "$image_root" "$image_shared" "$@"
	[ -z "$image_cgroup" ] || set -- sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$image_cgroup" "$@"
	exec "$@"
}

image_cgroup_make()
{
	image_cgroup=/sys/fs/cgroup/memory/kvscout-image-$$
	mkdir "$image_cgroup" 2>/dev/null && echo 256M >"$image_cgroup/memory.limit_in_bytes" && return
	image_cgroup=/sys/fs/cgroup/kvscout-image-$$
	mkdir "$image_cgroup" 2>/dev/null && echo 256M >"$image_cgroup/memory.max" 2>/dev/null && return
	image_cgroup=
}

# What the page on Python shows, on the container's server: the first run stores, looks up and loads.
image_hit()
{
	# shellcheck disable=SC2016 # these are marks of the page
	sed -n '/^```python/,/^```/{/^```/!p};/^An engine does not wait/q' "$ROOT/docs/python.md" |
		sed "s|chunk_tokens=64|endpoint='ipc://$image_shared/server/kvscout.sock', chunk_tokens=64|" >"$tap_dir/hit.py"
	limited "$WHEEL/empty/bin/python" "$tap_dir/hit.py" >"$tap_dir/said" && cat "$tap_dir/said" && grep -q '^192 ' "$tap_dir/said"
}

image_try()
(
	. "$ROOT/tests/system/tap.sh"
	image_container=$(image_tool from kvscout) && image_root=$(image_tool mount "$image_container") || exit 1
	image_shared=$tap_dir/volume
	chmod 755 "$tap_dir" && mkdir -m 777 "$image_shared" && image_cgroup_make
	entry=$(image_tool inspect --type image --format '{{.OCIv1.Config.Entrypoint}}' kvscout | tr -d '[]')
	began=$(date +%s%N)
	# shellcheck disable=SC2086 # a list of words
	serve image in_image 'unshare --mount --pid --ipc --net --uts --fork --kill-child' $entry --l1-bytes 64Mi
	unshare_pid=$server
	trap 'kill -KILL "$unshare_pid" 2>/dev/null; wait; [ -z "$image_cgroup" ] || rmdir "$image_cgroup"; image_tool rm "$image_container" >/dev/null; rm -rf "$tap_dir"' EXIT
	check "it serves in its folder of the volume" test "$endpoint" = ipc:///run/kvscout/server/kvscout.sock
	check "a hit from outside" image_hit
	echo "# from the start of the container to a hit: $((($(date +%s%N) - began) / 1000000)) ms"
	server=$(cat "/proc/$unshare_pid/task/$unshare_pid/children")
	server=${server% }
	check "it has no capability and no new privileges" test "$(sed -n 's/^Cap\(Prm\|Eff\|Bnd\):\t//p; s/^NoNewPrivs:\t//p' \
		"/proc/$server/status" | tr -d '\n')" = 0000000000000000000000000000000000000000000000001
	check "its user owns nothing else" test "$(stat -c %u "/proc/$server")" = 65532
	# shellcheck disable=SC2016 # the inner shell expands it
	check "its root is read-only" sh -c '! touch "/proc/$1/root/run/x" 2>/dev/null' sh "$server"
	check "the probe of its health" nsenter -t "$server" -a chroot "/proc/$server/root" kvscout ping --endpoint "$endpoint"
	if [ -n "$image_cgroup" ]; then
		check "its memory is its cgroup's" grep -q "$server" "$image_cgroup/cgroup.procs"
	else
		skip "its memory is its cgroup's" "no memory cgroup can be made here"
	fi
	kill -TERM "$server"
	check "SIGTERM to its first process ends it with 0" wait "$unshare_pid"
	finish
)

cmd_image()
{
	# shellcheck disable=SC2086 # a list of names
	need_base $WHEEL_PACKAGES buildah mmdebstrap
	[ "$(id -u)" -eq 0 ] || not_ready "the image is tried in namespaces that only root may make here"
	choose_cpu "$(uname -m)"
	[ -f "$WHEEL/empty/bin/kvscoutd" ] || (cmd_wheel --smoke) || exit 1
	choose_cpu "$(uname -m)"
	mkdir -p "$IMAGE" || die "cannot create $IMAGE"
	: >"$WHEEL_COUNTS"
	[ -n "${KVSCOUT_IMAGE_BASE:-}" ] || step base image_base
	step image image_build
	run_tap image_try
	image_tool images
	awk '{ p += $1; f += $2; s += $3 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0 }' "$WHEEL_COUNTS"
}
