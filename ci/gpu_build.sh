#!/usr/bin/env bash
# Builds everything that ci/gpu_check.sh runs on a machine with a GPU, on a machine without one: programs, GPU tests, the small
# libraries that they need, and the scripts, in one folder and one archive.
#   ci/gpu_build.sh [BUNDLE=build/gpu-bundle]    writes BUNDLE, BUNDLE.tar.gz, and BUNDLE.symbols: the same programs with
#                                                their symbols, which stay here to decode addresses
# Environment: BUILD (build/gpu, of preset gpu), NCCL (ON; OFF for machines that have no NCCL), CHECK_ONLY=1 (build nothing).
# CUDA's runtime is linked in. Not in the bundle: libc and its parts, the driver, NCCL and cuBLASLt, which are found there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bundle=${1:-build/gpu-bundle} build=${BUILD:-build/gpu}
programs=(all_reduce_perf ddp_overlap_bench kernels_bench mini_train)
carried='^lib(stdc\+\+|gcc_s|fmt|pugixml|pcre2-8|hwy|benchmark|z)\.so'
from_system='^(lib(c|m|dl|rt|pthread)\.so|ld-linux)'
from_outside='^libcuda\.so'
opened='^lib(cublasLt|nccl)\.so\.'  # at run time (core/open_library.h)

fail() { echo "ci/gpu_build.sh: $*" >&2; exit 1; }

build_all() {
  cmake --preset gpu -B "$build" -DLOCKSTEP_NCCL="${NCCL:-ON}" >/dev/null
  cmake --build "$build" --target "${programs[@]}" tests_gpu
}

gpu_tests() { ctest --test-dir "$build" -N -L '^gpu$' | sed -nE 's/^ *Test +#[0-9]+: //p'; }

# take FILE: copies a program without its symbols, which are kept aside, and the libraries that it needs; fails if one of these
# is neither carried in the bundle nor known to be on the machine with the GPU.
take() {
  local folder name library
  folder=$(basename "$(dirname "$1")") name=$(basename "$1")
  mkdir -p "$bundle/$folder" "$bundle.symbols/$folder"
  cp --link --force "$1" "$bundle.symbols/$folder/$name" 2>/dev/null || cp "$1" "$bundle.symbols/$folder/$name"
  strip --strip-all -o "$bundle/$folder/$name" "$1"
  printf '%s/%s' "$folder" "$name" >>"$bundle/needs.txt"
  needed_by "$1" | while read -r library; do
    if [[ $library =~ $from_outside ]]; then printf ' %s' "$library" >>"$bundle/needs.txt"
    elif [[ $library =~ $carried ]]; then carry "$library"
    elif ! [[ $library =~ $from_system ]]; then fail "$name needs $library, which a bare machine lacks"; fi
  done
  # Only some steps need NCCL; "?" means that a program runs without it.
  for library in $(opened_by "$1"); do printf ' %s' "${library/#libnccl*/$library?}" >>"$bundle/needs.txt"; done
  echo >>"$bundle/needs.txt"
}

opened_by() { strings "$1" | grep -E "$opened" | sort -u; }
needed_by() { readelf -d "$1" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p'; }

# Copies a small library and, as it may be newer than the machine's, the libraries that it needs itself.
carry() {
  local library
  [ ! -e "$bundle/lib/$1" ] || return 0
  mkdir -p "$bundle/lib"
  cp -L "$(ldconfig -p | awk -v name="$1" '$1 == name { print $NF; exit }')" "$bundle/lib/$1"
  needed_by "$bundle/lib/$1" | while read -r library; do
    if [[ $library =~ $carried ]]; then carry "$library"
    elif ! [[ $library =~ $from_system ]]; then fail "$1 needs $library, which a bare machine lacks"; fi
  done
}

# Fails for a test that no step runs, as it would be built for nothing.
check_steps() {
  local name
  for name in "$@"; do
    grep -q "/tests/$name\b" ci/gpu_steps_{first,second}.txt || fail "no step of ci/gpu_steps_*.txt runs the GPU test $name"
  done
}

[ "${CHECK_ONLY:-0}" = 1 ] || build_all
mapfile -t tests < <(gpu_tests)
[ "${#tests[@]}" -gt 0 ] || fail "$build has no GPU tests"
check_steps "${tests[@]}"
rm -rf "$bundle" "$bundle.tar.gz" "$bundle.symbols"
mkdir -p "$bundle/ci" "$bundle/compare"
for name in "${programs[@]}"; do take "$build/bin/$name"; done
for name in "${tests[@]}"; do take "$build/tests/$name"; done
cp ci/gpu_check.sh ci/gpu_steps_*.txt ci/gpu_targets.py "$bundle/ci"
cp compare/torch_gpu.py compare/torch_trainer.py "$bundle/compare"
tar -czf "$bundle.tar.gz" -C "$bundle" .
most_mib=52  # limit of the archive: it is copied with the repository's tree, and lenders of GPUs limit both together
[ "$(du -sm "$bundle.tar.gz" | cut -f1)" -le $most_mib ] || fail "$bundle.tar.gz is larger than $most_mib MiB"
echo "needed from the machine:"
sed 's/^/  /' "$bundle/needs.txt"
echo "$bundle: $(du -sm "$bundle" | cut -f1) MiB, $bundle.tar.gz: $(du -sm "$bundle.tar.gz" | cut -f1) MiB"
