# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# The stage aarch64 of `./dev check`: everything is built with Debian's cross compiler, and the unit tests run in qemu-user, some of them
# a second time with pages of 64 KiB. check.sh sources this file.
#
# The libraries of arm64 are downloaded and unpacked below build-aarch64-root, with lists and a package state of their own: nothing of
# them is installed, and they cannot conflict with what is. An emulator on x86 shows wrong sizes, alignments, page sizes, system calls
# and instructions; it does not show a missing fence, because x86 orders stores more strictly than aarch64 does.

ARM_ROOT=$ROOT/build-aarch64-root
ARM_PACKAGES='libc6-dev libzmq3-dev libck-dev libxxhash-dev libssl-dev libjansson-dev libhiredis-dev libmicrohttpd-dev check'
# What maps memory, or computes with pages.
ARM_PAGE_TESTS='wire_channel l1_memory l1_pool l1_index l1_index_memory l1_rebalance copy_host courier_lease client worker_limits'

arm_apt()
{
	APT_CONFIG=$ARM_ROOT/apt.conf apt-get -y -o Acquire::Retries=3 "$@"
}

# Packages with all that they depend on, unpacked once: the stamp names them.
make_arm_root()
{
	[ "$(cat "$ARM_ROOT/stamp" 2>/dev/null)" = "$ARM_PACKAGES" ] && return
	rm -rf "$ARM_ROOT"
	mkdir -p "$ARM_ROOT/lists/partial" "$ARM_ROOT/archives/partial" "$ARM_ROOT/root" && : >"$ARM_ROOT/status" || return 1
	cat >"$ARM_ROOT/apt.conf" <<END_OF_FILE || return 1
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Acquire::Languages "none";
Dir::State "$ARM_ROOT";
Dir::State::status "$ARM_ROOT/status";
Dir::Cache "$ARM_ROOT";
END_OF_FILE
	# An archive without arm64 does no harm where another one has it.
	arm_apt update || say "apt-get update failed for arm64; trying with the lists that are there"
	# shellcheck disable=SC2086 # a list of names
	arm_apt install --no-install-recommends --download-only $ARM_PACKAGES || return 1
	for ar_package in "$ARM_ROOT"/archives/*.deb; do
		dpkg-deb -x "$ar_package" "$ARM_ROOT/root" || return 1
	done
	rm -rf "$ARM_ROOT/archives" "$ARM_ROOT/lists"
	printf '%s\n' "$ARM_PACKAGES" >"$ARM_ROOT/stamp"
}

write_cross_file()
{
	cat >"$ARM_ROOT/cross.ini" <<END_OF_FILE
[binaries]
c = 'aarch64-linux-gnu-gcc'
ar = 'aarch64-linux-gnu-ar'
nm = 'aarch64-linux-gnu-nm'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '$ARM_ROOT/root']

[properties]
sys_root = '$ARM_ROOT/root'
pkg_config_libdir = '$ARM_ROOT/root/usr/lib/aarch64-linux-gnu/pkgconfig:$ARM_ROOT/root/usr/share/pkgconfig'

[built-in options]
c_args = ['--sysroot=$ARM_ROOT/root']
c_link_args = ['--sysroot=$ARM_ROOT/root']

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END_OF_FILE
}

stage_aarch64()
{
	if [ "$(uname -m)" = aarch64 ] || ! command -v dpkg-deb >/dev/null 2>&1; then
		say "for machines of another architecture, with the packages of Debian or Ubuntu"
		return "$STAGE_SKIPPED"
	fi
	make_arm_root && write_cross_file || return 1
	# The extension for Python would take the headers of this machine's Python.
	build "$ROOT/build-aarch64" --cross-file "$ARM_ROOT/cross.ini" -Dcuda=disabled -Dpython=disabled -Dwerror=true || return 1
	KVSCOUT_EXPECTED=$ROOT/tests/rigs/emulated.txt
	export KVSCOUT_EXPECTED
	aa_status=0
	run_tests "$ROOT/build-aarch64" --suite unit || aa_status=1
	say "-- pages of 64 KiB"
	# shellcheck disable=SC2086 # a list of names
	QEMU_PAGESIZE=65536 run_tests "$ROOT/build-aarch64" $ARM_PAGE_TESTS || aa_status=1
	return $aa_status
}
