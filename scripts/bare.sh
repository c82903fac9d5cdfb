# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# The stage bare of `./dev check`: the two commands of README.md do what they promise on a machine where nothing is
# installed. The machine is a root folder that debootstrap makes of Debian 12; the tree in it is a copy without git. check.sh sources
# this file.
#
#   as root      `./dev demo` and `./dev test` install what they need, and pass
#   as a user    without sudo, in a second root folder: both print the same command for root and end with status 2. Root runs that
#                command as it was printed. Then both pass.
#
# Both runs of the tests are whole, because some cases behave differently for root. Each takes 11 minutes of CPU time with its build:
# run the stage on an idle machine, or tests that have a limit of time fail by chance.
#
# Each command runs in a namespace of its own for mounts and processes, so that mounts and processes end with it, whatever happens. The
# folder is deleted at the end; the log says what failed. The packages come from the mirror of this machine's apt, with its settings.

BARE=$ROOT/build-bare
BARE_SUITE=bookworm
BARE_USER=dev

# bare_enter FOLDER USER COMMAND...: mounts what a container has, and runs the command. This is the first process of the namespaces.
bare_enter()
{
	set -e
	be_root=$1
	be_user=$2
	shift 2
	mount --bind "$be_root/../archives" "$be_root/var/cache/apt/archives"
	mount -t proc proc "$be_root/proc"
	mount -t sysfs -o ro sysfs "$be_root/sys"
	mount -t tmpfs -o mode=755 tmpfs "$be_root/run"
	mount -t tmpfs -o mode=755 tmpfs "$be_root/dev"
	for be_device in null zero full random urandom tty; do
		: >"$be_root/dev/$be_device"
		mount --bind "/dev/$be_device" "$be_root/dev/$be_device"
	done
	mkdir "$be_root/dev/pts" "$be_root/dev/shm"
	mount -t devpts -o newinstance,ptmxmode=0666 devpts "$be_root/dev/pts"
	mount -t tmpfs -o mode=1777 tmpfs "$be_root/dev/shm"
	ln -s pts/ptmx "$be_root/dev/ptmx"
	ln -s /proc/self/fd "$be_root/dev/fd"
	ln -s fd/0 "$be_root/dev/stdin"
	ln -s fd/1 "$be_root/dev/stdout"
	ln -s fd/2 "$be_root/dev/stderr"
	set +e
	# The first process of a namespace ignores signals that it does not handle.
	trap 'exit 130' INT TERM
	# shellcheck disable=SC2016 # the inner shell expands them
	chroot --userspec="$be_user" "$be_root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		sh -c 'HOME=$(getent passwd "$(id -u)" | cut -d : -f 6) && export HOME && cd && eval "$1"' sh "$*"
	exit
}

# in_bare FOLDER USER COMMAND...
in_bare()
{
	# shellcheck disable=SC2016 # the inner shell expands them
	unshare --mount --pid --kill-child env ROOT="$ROOT" sh -c '. "$ROOT/scripts/bare.sh" && bare_enter "$@"' sh "$@"
}

# The lines of sources.list for the mirrors of this machine that have Debian 12, or for Debian's own.
bare_sources()
{
	# shellcheck disable=SC2016 # apt-get replaces them
	bs_lines=$(apt-get indextargets --format '$(ORIGIN) deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
		sed -nE "s/^(Debian|[$]\(ORIGIN\)) (deb [^ ]* $BARE_SUITE(-updates|-security)? main)\$/\2/p" | sort -u)
	case $bs_lines in
	*" $BARE_SUITE main"*) printf '%s\n' "$bs_lines" ;;
	*) say "deb http://deb.debian.org/debian $BARE_SUITE main" "deb http://deb.debian.org/debian-security $BARE_SUITE-security main" ;;
	esac
}

# How this machine's apt reaches its mirrors. debootstrap has a proxy from the environment alone, apt from its settings, too.
bare_apt_settings()
{
	apt-config dump Acquire | grep -v '^Acquire::IndexTargets'
	[ -z "${http_proxy:-}" ] || say "Acquire::http::Proxy \"$http_proxy\";"
	[ -z "${https_proxy:-}" ] || say "Acquire::https::Proxy \"$https_proxy\";"
}

bare_bootstrap()
{
	bare_sources >"$BARE/sources.list"
	bb_proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy)
	bb_mirror=$(sed -n "s/^deb \([^ ]*\) $BARE_SUITE main\$/\1/p" "$BARE/sources.list" | head -n 1)
	http_proxy=${http_proxy:-$bb_proxy} debootstrap --variant=minbase "$BARE_SUITE" "$BARE/base" "$bb_mirror"
}

# A second machine is a copy: the lists of packages are gone, as in a container's image.
bare_furnish()
{
	cp "$BARE/sources.list" "$BARE/base/etc/apt/sources.list" || return 1
	bare_apt_settings >"$BARE/base/etc/apt/apt.conf.d/99mirror" || return 1
	for bf_file in /etc/resolv.conf /etc/hosts /etc/apt/auth.conf /etc/apt/auth.conf.d; do
		[ ! -e "$bf_file" ] || cp -rL "$bf_file" "$BARE/base$(dirname "$bf_file")" || return 1
	done
	rm -rf "$BARE"/base/var/lib/apt/lists/* && mkdir -p "$BARE/archives/partial" || return 1
	chroot "$BARE/base" useradd --create-home --shell /bin/sh "$BARE_USER" || return 1
	cp -a "$BARE/base" "$BARE/second" && bare_tree "$BARE/base/root" && bare_tree "$BARE/second/home/$BARE_USER" || return 1
	chroot "$BARE/second" chown -R "$BARE_USER:$BARE_USER" "/home/$BARE_USER"
}

bare_tree()
{
	mkdir "$1/kvscout" && for_files "$(files_like '*')" cp --parents -t "$1/kvscout"
}

# bare_run STATUS FOLDER USER COMMAND...: STATUS is what the command has to end with; the file out holds what it printed.
bare_run()
{
	br_want=$1
	shift
	say "-- $2: $3"
	br_start=$(date +%s)
	in_bare "$BARE/$1" "$2" "$3" >"$BARE/out" 2>&1
	br_status=$?
	cat "$BARE/out"
	say "-- $2: $3: status $br_status after $(($(date +%s) - br_start)) s"
	[ $br_status -eq "$br_want" ]
}

# bare_pass FOLDER USER: demo and test do their work.
bare_pass()
{
	bare_run 0 "$1" "$2" 'cd kvscout && ./dev demo' || return 1
	grep -qx 'wrong bytes: 0' "$BARE/out" || return 1
	bare_run 0 "$1" "$2" 'cd kvscout && ./dev test' || return 1
	tail -n 1 "$BARE/out" | grep -qE '^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$'
}

# bare_asks PREFIX: prints the command that demo and test both ask the user to run, without the prefix that it must have.
bare_asks()
{
	for ba_command in demo test; do
		bare_run 2 second "$BARE_USER" "cd kvscout && ./dev $ba_command" >&2 || return 1
		grep "^$1apt-get update" "$BARE/out" >"$BARE/asked-$ba_command" || return 1
	done
	cmp "$BARE/asked-demo" "$BARE/asked-test" >&2 && sed "s/^$1//" "$BARE/asked-test"
}

bare_as_user()
{
	printf '#!/bin/sh\nexit 1\n' >"$BARE/second/usr/local/bin/sudo" && chmod 755 "$BARE/second/usr/local/bin/sudo"
	bare_asks 'sudo ' || {
		say "where sudo may not be used, demo and test do not print the command with sudo"
		return 1
	}
	rm "$BARE/second/usr/local/bin/sudo"
	bu_command=$(bare_asks 'as root: ') || {
		say "where there is no sudo, demo and test do not print the same command for root"
		return 1
	}
	case $bu_command in *sudo*) say "there is no sudo: $bu_command" && return 1 ;; esac
	bare_run 0 second root "$bu_command" && bare_pass second "$BARE_USER"
}

stage_bare()
{
	if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
		say "only root can make a root folder of Debian 12, with debootstrap and apt"
		return "$STAGE_SKIPPED"
	fi
	rm -rf --one-file-system "$BARE"
	mkdir -p "$BARE" || return 1
	trap 'rm -rf --one-file-system "$BARE"' EXIT
	trap 'exit 130' INT TERM HUP
	# shellcheck disable=SC2016 # the inner shell expands it
	if ! unshare --mount --pid --kill-child sh -c 'mount -t proc proc "$1" && mount -t sysfs -o ro sysfs "$1"' sh "$BARE"; then
		say "root may not mount here, or may not make namespaces"
		return "$STAGE_SKIPPED"
	fi
	if ! bare_bootstrap; then
		say "debootstrap made no root folder: no packages, or no permission to make devices; the log says which"
		return "$STAGE_SKIPPED"
	fi
	bare_furnish || {
		say "cannot put the tree and apt's settings into the root folders"
		return 1
	}
	sb_status=0
	bare_pass base root || sb_status=1
	bare_as_user || sb_status=1
	return $sb_status
}
