# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# The stage abi of `./dev check`: the exported functions of the three libraries and the types of the installed headers, as libabigail reads
# them from debug information, must be those of the stored dumps tests/abi/*.abi. `./dev check abi --update` writes the dumps.
# Debug information lacks an enum that no function names: tests/abi/numbers.c holds those. check.sh sources this file.

ABI_FOLDER=$ROOT/tests/abi

# The build needs debug information, which the default build of a machine need not have. It has no tests and no tools.
build_for_abi()
{
	CC=gcc
	export CC
	ba_version=$(sed -n "s/^  version: '\(.*\)',\$/\1/p" "$ROOT/meson.build")
	ABI_CLIENT=libclient/libkvscout-client.so.$ba_version
	ABI_WORKER=libworker/libkvscout-worker.so.$ba_version
	ABI_SERVER=libserver/libkvscout-server.so.$ba_version
	build "$ROOT/build-abi" --target "$ABI_CLIENT $ABI_WORKER $ABI_SERVER" --buildtype=debug -Dtests=disabled -Dcuda=disabled -Dwerror=false
}

# dump_abi LIBRARY FILE: no paths, lines or parameter names, so that a dump changes when the ABI does.
dump_abi()
{
	abidw --headers-dir "$ROOT/include" --drop-private-types --exported-interfaces-only \
		--no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed \
		--no-parameter-names --type-id-style hash --out-file "$2" "$ROOT/build-abi/$1"
}

# Both sides are dumps: what one dump leaves out, the other does, too.
compare_abi()
{
	ca_name=$(basename "$1")
	ca_name=${ca_name%.so.*}
	dump_abi "$1" "$ROOT/build-abi/$ca_name.abi" || return 1
	say "-- $ca_name, against tests/abi/$ca_name.abi"
	abidiff "$ABI_FOLDER/$ca_name.abi" "$ROOT/build-abi/$ca_name.abi"
}

stage_abi()
{
	if [ "$(uname -m)" != x86_64 ]; then
		say "the dumps are of x86_64, this machine is $(uname -m)"
		return "$STAGE_SKIPPED"
	fi
	build_for_abi || return 1
	if [ "$CHECK_UPDATE" = yes ]; then
		dump_abi "$ABI_CLIENT" "$ABI_FOLDER/libkvscout-client.abi" && dump_abi "$ABI_WORKER" "$ABI_FOLDER/libkvscout-worker.abi" &&
			dump_abi "$ABI_SERVER" "$ABI_FOLDER/libkvscout-server.abi"
		return
	fi
	ab_status=0
	for ab_library in "$ABI_CLIENT" "$ABI_WORKER" "$ABI_SERVER"; do
		compare_abi "$ab_library" || ab_status=1
	done
	[ $ab_status -eq 0 ] && return
	say "The ABI is not that of the dumps. A released one may grow by functions, and by fields behind the last one of a structure whose"
	say "size travels with it; any other change needs a new soname. If the change is meant: ./dev check abi --update, and commit the dumps."
	return 1
}
