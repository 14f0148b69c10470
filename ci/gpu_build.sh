#!/usr/bin/env bash
# Builds everything that ci/gpu_check.sh runs on a machine with a GPU, on a machine without one: programs, GPU tests, the small
# libraries that they need, and the scripts, in one folder and one archive.
#   ci/gpu_build.sh [BUNDLE=build/gpu-bundle]    writes BUNDLE, BUNDLE.tar.gz, and BUNDLE.symbols: the same programs with
#                                                their symbols, which stay here to decode addresses
# Environment: BUILD (build/gpu, of preset gpu), NCCL (ON; OFF for machines that have no NCCL), CHECK_ONLY=1 (build nothing).
# Our libraries are shared ones, so that the kernels are in the bundle once. Not in the bundle: libc and its parts, the driver,
# NCCL and cuBLASLt, which are found there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bundle=${1:-build/gpu-bundle} build=${BUILD:-build/gpu}
programs=(all_reduce_perf ddp_overlap_bench kernels_bench mini_train)
ours='^liblockstep_'
carried='^lib(cudart|stdc\+\+|gcc_s|fmt|pugixml|pcre2-8|hwy|benchmark|z|aio)\.so'
from_system='^(lib(c|m|dl|rt|pthread)\.so|ld-linux)'
from_outside='^libcuda\.so'
opened='^lib(cublasLt|nccl)\.so\.'  # at run time (core/open_library.h)

fail() { echo "ci/gpu_build.sh: $*" >&2; exit 1; }

build_all() {
  cmake --preset gpu -B "$build" -DLOCKSTEP_NCCL="${NCCL:-ON}" >/dev/null
  cmake --build "$build" --target "${programs[@]}" tests_gpu
}

gpu_tests() { ctest --test-dir "$build" -N -L '^gpu$' | sed -nE 's/^ *Test +#[0-9]+: //p'; }

# take FILE: copies a program, and the libraries that it needs; fails if one of these is neither carried in the bundle nor known to be
# on the machine with the GPU. Adds a line to needs.txt: the program, and what it needs from there.
take() {
  local name library
  name=$(basename "$(dirname "$1")")/$(basename "$1")
  stripped "$1" "$name"
  {
    printf '%s' "$name"
    carry_needs "$1"
    # "?": only some steps need what is opened at run time, and a program runs without it.
    for library in $(opened_by "$1"); do printf ' %s?' "$library"; done
    echo
  } >>"$bundle/needs.txt"
}

# stripped FILE NAME: copies it to the bundle without its symbols, which are kept aside.
stripped() {
  mkdir -p "$(dirname "$bundle/$2")" "$(dirname "$bundle.symbols/$2")"
  cp --link --force "$1" "$bundle.symbols/$2" 2>/dev/null || cp "$1" "$bundle.symbols/$2"
  strip --strip-all -o "$bundle/$2" "$1"
}

needed_by() { readelf -d "$1" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p'; }

# ours_of FILE: the file, and the libraries of ours that it needs, directly or not.
ours_of() {
  local -A seen=()
  local files=("$1") file library
  while [ ${#files[@]} -gt 0 ]; do
    file=${files[0]} files=("${files[@]:1}")
    [ -z "${seen[$file]-}" ] || continue
    seen[$file]=1
    for library in $(needed_by "$file" | grep -E "$ours"); do files+=("$build/lib/$library"); done
  done
  printf '%s\n' "${!seen[@]}"
}

opened_by() { ours_of "$1" | xargs strings | grep -E "$opened" | sort -u; }

# Copies the libraries that a file needs. One of others may be newer than the machine's, so those that it needs itself are copied, too.
carry_needs() {
  local library
  for library in $(needed_by "$1"); do
    if [[ $library =~ $from_outside ]]; then printf ' %s' "$library"
    elif [[ $library =~ $ours ]]; then carry "$library" "$build/lib/$library"
    elif [[ $library =~ $carried ]]; then
      carry "$library" "$(ldconfig -p | awk -v name="$library" '$1 == name { print $NF; exit }')"
    elif ! [[ $library =~ $from_system ]]; then fail "$1 needs $library, which a bare machine lacks"; fi
  done
}
carry() {
  [ ! -e "$bundle/lib/$1" ] || return 0
  mkdir -p "$bundle/lib"
  if [[ $1 =~ $ours ]]; then stripped "$2" "lib/$1"; else cp -L "$2" "$bundle/lib/$1"; fi
  carry_needs "$2"
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
