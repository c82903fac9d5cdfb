#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `./dev gpu` from an exported tree with gcc, g++, nvcc and libc alone: what builds is reported as not run where there is no GPU, what
# does not build is red, and a missing tool is named and skipped.
# usage: test_dev_gpu.sh SOURCE_ROOT
root=$1
. "$(dirname "$0")/tap.sh"

unset CC CXX NVCC OUT CI KVSCOUT_WERROR
cuda_bin=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")
tree=$tap_dir/tree
tools=$tap_dir/tools
mkdir -p "$tree/tests" "$tools"
cp -R "$root/dev" "$root/scripts" "$root/include" "$root/libclient" "$root/libworker" "$root/bench" "$tree" || exit 1
cp -R "$root/tests/gpu" "$tree/tests" || exit 1

for tool in sh env dirname basename readlink mkdir rm cat cksum sed grep head tee date timeout gcc g++ as ld; do
	found=$(command -v $tool) && [ -x "$found" ] && ln -s "$found" "$tools/$tool"
done

# In the exported tree, with those tools alone.
cat >"$tap_dir/dev_gpu" <<END
#!/bin/sh
exec env PATH="\${TEST_PATH:-$tools:$cuda_bin}" "$tree/dev" gpu "\$@"
END
chmod +x "$tap_dir/dev_gpu"
dev_gpu=$tap_dir/dev_gpu

fails_with_a_planted_error_in() {
	cp "$tree/$1" "$tap_dir/kept" && echo 'this is no line of C;' >>"$tree/$1" || return 1
	ends_with 1 "0 passed, 1 failed, 0 skipped" "$dev_gpu" --build
	fw_status=$?
	cp "$tap_dir/kept" "$tree/$1"
	return $fw_status
}

names_what_is_missing() {
	ends_with 0 "SKIPPED, not found: $1" env TEST_PATH="$2" NVCC="$3" "$dev_gpu" || return 1
	grep -qx "0 passed, 0 failed, 1 skipped" "$tap_dir/out"
}

without_gxx() {
	mkdir "$tap_dir/no-g++" && cp -P "$tools"/* "$tap_dir/no-g++" && rm "$tap_dir/no-g++/g++" || return 1
	names_what_is_missing g++ "$tap_dir/no-g++:$cuda_bin" "$cuda_bin/nvcc"
}

# Cases that scripts/gpu.sh runs by name.
case_exists() {
	ce_name=$(sed -n 's/^GPU_CASE=//p' "$root/scripts/gpu.sh")
	[ -n "$ce_name" ] && grep -q "{\"$ce_name\", " "$root/tests/gpu/gpu_copy.c"
}

builds_and_runs_nothing() {
	ends_with 0 "build: passed" "$dev_gpu" --build || return 1
	"$tree/build-gpu/bin/kvscout-copy" --devices && return 0
	ends_with 0 "no GPU here" "$dev_gpu" || return 1
	tail -n 1 "$tap_dir/out" | grep -Eqx '1 passed, 0 failed, [1-9][0-9]+ skipped'
}

runs_what_was_built_before() {
	ends_with 0 "using the programs in build-gpu" env TEST_PATH="$tools" NVCC=/nonexistent/nvcc "$dev_gpu" --build
}

check "the cases that run once more exist" case_exists
check "no nvcc is a skip that says so" names_what_is_missing nvcc "$tools" /nonexistent/nvcc
check "no g++ is a skip that says so" without_gxx
if [ -x "$cuda_bin/nvcc" ] && command -v g++ >/dev/null && command -v gcc >/dev/null; then
	check "a kernel of the engine that does not compile is red" fails_with_a_planted_error_in libworker/copy/cuda_kernels.cu
	check "a C file of the engine that does not compile is red" fails_with_a_planted_error_in libworker/copy/cuda_lane.c
	check "a test that does not compile is red" fails_with_a_planted_error_in tests/gpu/gpu_copy.c
	check "an exported tree builds, and reports what is not run" builds_and_runs_nothing
	check "programs that were built from this tree need no compiler" runs_what_was_built_before
else
	skip "builds" "no gcc, g++ or nvcc"
fi
finish
