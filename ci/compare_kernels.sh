#!/usr/bin/env bash
# Compares Lockstep's kernels with plain streaming loops over the same operands, PyTorch (eager), oneDNN and OpenBLAS (GEMM), and
# libmvec (exp). Runs alternate, group by group of cases and round by round, so that drift affects all alike.
#   ci/compare_kernels.sh [BUILD=build/release] [OUT=out/compare_kernels]
# Environment: ROUNDS (3), THREADS (2), CACHES ("cold warm"), MILLISECONDS per case (100), FAMILIES (regular expressions of
# kernels_bench's names, one per group).
# Programs that are missing are built; peers that are not installed are left out (ci/install.sh peers test).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/${1:-build/release} out=${2:-out/compare_kernels}
rounds=${ROUNDS:-3} threads=${THREADS:-2} caches=${CACHES:-cold warm} ms=${MILLISECONDS:-100}
families=${FAMILIES:-^gelu ^layernorm|^residual_layernorm ^rmsnorm|^residual_rmsnorm ^softmax ^cross_entropy ^adamw/.*N16M \
^momentum/.*N16M ^(sum_of_squares|finite_check)/.*N16M ^residual_add ^reduction/.*(64KiB|16MiB) ^(un)?pack_bucket ^cast \
^quantize|^dequantize ^dropout ^embedding ^attention_[bfm] ^attention_decode/.*S1_ ^gemm}
python=/usr/bin/python3  # Debian's, which has PyTorch

fail() { echo "ci/compare_kernels.sh: $*" >&2; exit 1; }
[ -f "$build/CMakeCache.txt" ] || cmake --preset release -B "$build" >/dev/null
rm -rf "$out"
mkdir -p "$out"
log=$out/log
cmake --build "$build" --target kernels_bench peers >"$log" || { tail -n 20 "$log" >&2; fail "the build failed"; }
grep -h "^peers:" "$log" || true

# As in kernels_bench: twice the last-level cache, so that no set of operands is still cached.
l3=$(cat /sys/devices/system/cpu/cpu0/cache/index3/size 2>/dev/null || echo 32768K)
cold_bytes_of() { if [ "$1" = cold ]; then echo $((2 * ${l3%K} * 1024)); else echo 0; fi; }

# try LABEL COMMAND...: reports a library that fails or hangs, and cases that it cannot do; rows printed before still count.
try() {
  local label=$1
  shift
  timeout 900 "$@" >"$out/$label.csv" 2>"$log" || echo "$label failed: $(tail -n 1 "$log")" >&2
  grep '^pytorch' "$log" >&2 || true
}

ours() {  # FAMILY CACHE RECORDS
  "$build/bin/kernels_bench" --benchmark_filter="($1)" --threads "$threads" --cache "$2" --check 0 --ceilings 0 \
    --benchmark_min_time="$(awk -v ms="$ms" 'BEGIN { print ms / 2000 }')" --json "$3" >"$log" 2>&1
}

pytorch() {  # RECORDS CACHE LABEL
  "$python" -c 'import torch' 2>/dev/null || return 0
  try "$3" env OMP_NUM_THREADS="$threads" OMP_PROC_BIND=true OMP_PLACES=cores "$python" ci/compare_kernels_torch.py "$1" \
    "$(cold_bytes_of "$2")" "$ms"
}

limit() {  # RECORDS CACHE LABEL
  local -a loops
  mapfile -t loops < <("$python" ci/compare_kernels.py streams "$1")
  try "$3" "$build/bin/peers/streaming_limit" "$threads" "$(cold_bytes_of "$2")" "$ms" "${loops[@]}"
}

gemm_peers() {  # RECORDS CACHE LABEL
  local -a shapes
  mapfile -t shapes < <("$python" ci/compare_kernels.py streams "$1" | grep '^gemm_\(fwd\|dgrad\|wgrad\)/' | cut -d= -f1)
  [ ${#shapes[@]} -gt 0 ] || return 0
  # OpenBLAS 0.3.21 treats newer processors as a Haswell unless OPENBLAS_CORETYPE is set.
  for library in openblas onednn; do
    [ -x "$build/bin/peers/${library}_gemm" ] || continue
    try "$3-$library" env OPENBLAS_CORETYPE="${OPENBLAS_CORETYPE:-SkylakeX}" OPENBLAS_NUM_THREADS="$threads" \
      OMP_NUM_THREADS="$threads" OMP_PROC_BIND=true OMP_PLACES=cores "$build/bin/peers/${library}_gemm" \
      "$(cold_bytes_of "$2")" "$ms" "${shapes[@]}"
  done
}

for family in $families; do
  for cache in $caches; do
    for ((round = 1; round <= rounds; ++round)); do
      label=${family//[^a-z0-9_]/}-$cache-$round
      records=$out/ours-$label.jsonl
      echo "$family, $cache, round $round" >&2
      ours "$family" "$cache" "$records" || { tail -n 1 "$log" >&2; rm -f "$records"; continue; }
      [ "$cache" != cold ] || limit "$records" "$cache" "limit-$label"
      pytorch "$records" "$cache" "pytorch-$label"
      gemm_peers "$records" "$cache" "gemm-$label"
    done
  done
done
for ((round = 1; round <= rounds; ++round)); do
  [ ! -x "$build/bin/peers/exp_speed" ] || try "exp-$round" "$build/bin/peers/exp_speed"
done
rm -f "$log"
compgen -G "$out/*.jsonl" >/dev/null || fail "no family of '$families' has a case"
"$python" ci/compare_kernels.py table "$out"
