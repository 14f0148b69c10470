#!/usr/bin/env bash
# Runs on a machine with a GPU: tests, benchmarks and comparisons from the bundle that ci/gpu_build.sh has made elsewhere, in under
# ten minutes, the most important ones first. Needs bash, coreutils, tar and a driver; cuBLASLt, NCCL, Python, PyTorch, Nsight Compute
# and compute-sanitizer if they are there.
#   ci/gpu_check.sh BUNDLE OUT [STEP...]   BUNDLE: the folder or the archive; OUT: a folder, which gets gpu_check.log,
#                                          summary.html and records.tar.gz; they are written every 15 s, so that they exist
#                                          even after an interruption
#   ci/gpu_check.sh --list                 the steps, the seconds that each is likely to take, and its limit
# Environment: LIST (first; second: steps for which the first ten minutes are too short; sanitize: small cases under
# compute-sanitizer), PYTHON (python3), CUDA_FOLDERS (where CUDA may be), BUDGET_S (540), PACK_EVERY_S (15).
# A bundle with a file stand_in.txt is a dry run's (ci/gpu_dry_run.sh): its libraries compute nothing, results are not judged.
# Status: 0 all steps that could run succeeded, 1 a step failed or took too long, 2 wrong usage, 3 no GPU: nothing could run.
set -uo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list=${LIST:-first}
steps_file=${STEPS_FILE:-$scripts/gpu_steps_$list.txt}
cuda_folders=${CUDA_FOLDERS:-${CUDA_HOME:-} /usr/local/cuda /usr/local/cuda-*}
budget_s=${BUDGET_S:-540} pack_every_s=${PACK_EVERY_S:-15}
most_repeats=3  # under compute-sanitizer, of tests that fail
PATH=$PATH:/usr/sbin:/sbin

fail() { echo "ci/gpu_check.sh: $*" >&2; exit 2; }

# Steps, each with its likely duration in seconds, its limit, its needs, and its command.
names=()
declare -A likely limit needs command result seconds
read_steps() {
  local name a_limit a_needs a_command
  while IFS='|' read -r name a_limit a_needs a_command; do
    [[ $name =~ ^\ *(#|$) ]] && continue
    name=${name// /}
    names+=("$name")
    a_limit=${a_limit// /}
    likely[$name]=${a_limit%/*} limit[$name]=${a_limit#*/} needs[$name]=$a_needs command[$name]=$a_command
  done <"$steps_file" || fail "LIST is '$list'; allowed: first, second, sanitize"
}

list_steps() {
  local name sum=0
  for name in "${names[@]}"; do
    printf '%-18s %4s s, at most %4s s  %s\n' "$name" "${likely[$name]}" "${limit[$name]}" "${command[$name]}"
    sum=$((sum + likely[$name]))
  done
  echo "together likely $sum s; no step begins after $budget_s s"
}

# is_at_least VERSION LEAST
is_at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# folders_of LIBRARY: prints where it was found ("system", "CUDA" or "Python") and its folder, a line each.
folders_of() {
  local path folder
  path=$(ldconfig -p 2>/dev/null | awk -v name="$1" '$1 == name { print $NF; exit }')
  [ -z "$path" ] || echo "system $(dirname "$path")"
  for folder in $cuda_folders; do
    for path in "$folder"/{lib64,lib,targets/x86_64-linux/lib}/"$1"; do
      [ ! -e "$path" ] || echo "CUDA $(dirname "$path")"
    done
  done
  [ -n "$python" ] || return 0
  while IFS= read -r folder; do
    for path in "$folder"/nvidia/*/lib/"$1" "$folder/torch/lib/$1"; do
      [ ! -e "$path" ] || echo "Python $(dirname "$path")"
    done
  done < <("$python" -c 'import sys; print("\n".join(filter(None, sys.path)))' 2>/dev/null)
}

# folder_of LIBRARY: prints the first one found, for NCCL the first of the newest version, as a step may need a newer one; fails
# if there is none.
folder_of() {
  local all found version="" newest=""
  all=$(folders_of "$1")
  [ -n "$all" ] || return 1
  if [[ $1 == libnccl* ]]; then
    while IFS= read -r found; do
      version=$(version_of_nccl "${found#* }/$1")
      [ -z "$newest" ] || ! is_at_least "$newest" "${version:-0}" || continue
      newest=${version:-0} all=$found$'\n'
    done <<<"$all"
  fi
  head -n 1 <<<"$all"
}

# For each library that the bundle's programs need from outside, or with "?" can use: adds its folder to found_folders, or reports
# that it is missing.
declare -A missing
found_folders="" nccl_version=""
find_libraries() {
  local needed library found
  for needed in $(cut -s -d' ' -f2- "$bundle/needs.txt" | tr ' ' '\n' | sort -u); do
    library=${needed%\?}
    if found=$(folder_of "$library"); then
      echo "$library: ${found#* } (${found%% *})"
      found_folders+=:${found#* }
      [[ $library != libnccl* ]] || nccl_version=$(version_of_nccl "${found#* }/$library")
    else
      echo "$library: not found in the system, CUDA or Python packages"
      [ "$needed" != "$library" ] || missing[$library]=1
    fi
  done
  [ -z "$nccl_version" ] || echo "NCCL $nccl_version"
}

version_of_nccl() { grep -aoEm1 'NCCL version [0-9]+\.[0-9]+(\.[0-9]+)?' "$1" 2>/dev/null | head -n 1 | cut -d' ' -f3; }

# find_tool NAME: searches PATH, CUDA's folders, and the folders of a separate Nsight Compute.
find_tool() {
  local path
  for path in "$(command -v "$1" || true)" $(printf '%s/bin/'"$1"' ' $cuda_folders) /opt/nvidia/nsight-compute/*/"$1"; do
    [ ! -x "$path" ] || { echo "$path"; return; }
  done
}

# Keeps the GPUs' device files open to the end of this script. Where the driver is not in persistence mode, it shuts a GPU down
# when the last client closes its file, and each of 50 programs would wait seconds until the GPU is up again.
hold_gpus() {
  local file held
  for file in ${GPU_FILES:-/dev/nvidia[0-9]*}; do
    [ ! -c "$file" ] || { exec {held}<>"$file"; } 2>/dev/null || echo "cannot hold $file open"
  done
}

# Facts about the machine, for the log's reader: nothing depends on them.
describe() {
  echo "===== facts"
  timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "nvidia-smi does not answer"
  timeout 20 nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE,ECC,COMPUTE 2>/dev/null | grep -v '^ *$' | head -n 120
  timeout 20 nvidia-smi topo -m 2>/dev/null
  timeout 20 nvidia-smi --query-gpu=mig.mode.current,persistence_mode,compute_mode,pcie.link.gen.current,pcie.link.width.current \
    --format=csv 2>/dev/null
  echo "kernel $(uname -r), $(nproc) cores, $(free -g 2>/dev/null | awk '/^Mem:/ { print $2 }') GiB, $(ldd --version | head -n 1)"
  env | grep -E '^(CUDA|NCCL|NVIDIA)_' | sort
  echo "python: ${python:-none}, sanitizer: ${sanitizer:-none}, ncu: ${ncu:-none}"
}

# After a failure: prints the messages of the driver and the kernel.
evidence() {
  echo "----- the driver after this failure"
  { timeout 5 dmesg 2>&1 || true; } | grep -iE 'xid|nvrm|not permitted' | tail -n 20
  timeout 10 nvidia-smi 2>&1 || echo "nvidia-smi does not answer"
}

# why_not STEP: prints one line on what the step lacks; nothing if it can run.
why_not() {
  local need program library words
  [[ -z $no_gpu || ${needs[$1]} != *gpu* ]] || { echo "$no_gpu"; return; }
  read -ra words <<<"${command[$1]}"  # does not expand words that look like file patterns
  for program in "${words[@]}"; do
    [[ $program == '{B}/'* ]] || continue
    program=${program#'{B}/'}
    [ -x "$bundle/$program" ] || { echo "$program is not in the bundle"; return; }
    for library in "${!missing[@]}"; do
      ! grep -q "^$program .*$library" "$bundle/needs.txt" || { echo "$library was not found"; return; }
    done
  done
  for need in ${needs[$1]}; do lacks "$need" && return; done
}

# lacks NEED: prints the missing need; fails if nothing is missing.
lacks() {
  case $1 in
    - | gpu | again) return 1 ;;
    python) [ -z "$python" ] && echo "there is no python3" ;;
    torch) ! has_torch && echo "${python:-python3} has no PyTorch 2.5 or newer" ;;
    sanitizer) [ -z "$sanitizer" ] && echo "compute-sanitizer was not found" ;;
    ncu) [ -z "$ncu" ] && echo "Nsight Compute (ncu) was not found" ;;
    nccl*) ! is_at_least "${nccl_version:-0}" "${1#*=}" && echo "NCCL is ${nccl_version:-unknown}; allowed: ${1#*=} or newer" ;;
    *) echo "the table asks for '$1', which is unknown" ;;
  esac
}

has_torch() {
  [ -n "$python" ] && is_at_least "$("$python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || echo 0)" 2.5
}

library_path() { echo "$bundle/lib$found_folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"; }

now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
tenths() { printf '%d.%d' $(($1 / 1000)) $(($1 % 1000 / 100)); }

# run_step NAME: its result goes to result[NAME], its output to the log.
run_step() {
  local name=$1 status start output=$records/output.txt why words
  why=$(why_not "$name")
  [ "$(seconds_for "$name")" -gt 0 ] || why="the time of all steps, $budget_s s, was over"
  if [ -n "$why" ]; then
    result[$name]="left out: $why" seconds[$name]=0
    tell_result "$name"
    return
  fi
  printf '%s ... ' "$name"
  mapfile -t words < <(words_of "$name")
  start=$(now_ms)
  limited "$(seconds_for "$name")" "${words[@]}" >"$output" 2>&1 </dev/null
  status=$?
  seconds[$name]=$(tenths $(($(now_ms) - start)))
  result[$name]=$("${dry}verdict" "$name" "$status" "$output")
  echo "${result[$name]}, ${seconds[$name]} s"
  { echo "===== $name: ${result[$name]}, ${seconds[$name]} s"; cat "$output"; } >>"$log"
  # A PyTorch that sees no GPU may have been built without CUDA.
  [[ -n $no_gpu || ${command[$name]} == *'{python}'* ]] || no_gpu=$(grep -om1 'no CUDA device: .*' "$output")
  case ${result[$name]} in
    ok) tail -n 8 "$output" ;;
    left\ out* | ran*) ;;
    *) tail -n 25 "$output"
      evidence >>"$log" 2>&1
      [[ ${needs[$name]} != *again* || -z $sanitizer || -n $no_gpu ]] || repeat "$name" ;;
  esac
  rm -f "$output"
  tell_result "$name"
}

# For the summary, which is made from these even if this script is interrupted.
tell_result() { printf '%s\t%s\t%s\n' "$1" "${seconds[$1]}" "${result[$1]}" >>"$records/steps.tsv"; }

# Repeats a failed test at once under compute-sanitizer, with a wait after each launch, so that the error names the kernel.
repeats=0
repeat() {
  local output=$records/output.txt left=$((budget_s - SECONDS)) words settings=(LOCKSTEP_CUDA_SYNC=1)
  [ $((repeats += 1)) -le $most_repeats ] && [ $left -gt 0 ] || return 0
  mapfile -t words < <(words_of "$1")
  while [[ ${words[0]} != "$bundle"/* ]]; do settings+=("${words[0]}") words=("${words[@]:1}"); done
  limited $((left < 45 ? left : 45)) "${settings[@]}" "$sanitizer" --tool memcheck --print-limit 5 "${words[@]}" \
    >"$output" 2>&1 </dev/null
  { echo "===== $1 again, under compute-sanitizer: status $?"; head -c 200000 "$output"; } >>"$log"
  grep -E '=========|rror' "$output" | head -n 12
}

# The step's command, one line per word; no word contains blanks.
words_of() {
  local word given
  [ -z "$dry" ] || echo "LOCKSTEP_STAND_IN_FACTS=$bundle/stand_in.txt"
  [ -z "$dry" ] || echo "LOCKSTEP_STAND_IN_REPORT=$records/stand_in_report.txt"
  # Python brings its own libraries, which the bundle's must not replace.
  [[ ${command[$1]} == *'{python}'* ]] || echo "LD_LIBRARY_PATH=$(library_path)"
  read -ra given <<<"${command[$1]}"
  for word in "${given[@]}"; do
    word=${word//'{B}'/$bundle} word=${word//'{O}'/$records} word=${word//'{S}'/$scripts} word=${word//'{python}'/$python}
    word=${word//'{ncu}'/$ncu}
    printf '%s\n' "${word//'{sanitizer}'/$sanitizer}"  # echo would take a word -e as its own
  done
}

# limited SECONDS WORD...: settings first, then a program. One that hangs gets SIGTERM at its limit, with all that it has
# started, and SIGKILL 5 s later.
limited() { timeout --kill-after=5 "$1" env "${@:2}"; }

# Its limit, or the remaining time of all steps if that is less.
seconds_for() { echo $((limit[$1] < budget_s - SECONDS ? limit[$1] : budget_s - SECONDS)); }

# A test program without a GPU skips all its tests and reports that none has passed.
verdict() {
  local absent
  case $2 in
    0) if ! grep -q '^\[  PASSED  \] 0 tests' "$3"; then echo ok; else
         echo "left out: $(grep -om1 'no CUDA device: .*' "$3" || echo "its tests were skipped")"
       fi ;;
    124 | 137) echo "killed: it took more than ${limit[$1]} s" ;;
    *) absent=$(grep -om1 '[A-Za-z]* cannot be opened (add its folder' "$3" | cut -d' ' -f1)
      if [ -n "$absent" ]; then echo "left out: $absent was not found"
      elif grep -q '^no CUDA device: PyTorch' "$3"; then echo "left out: $(grep -om1 '^no CUDA device: PyTorch.*' "$3")"
      else echo "failed with status $2"; fi ;;
  esac
}

# The same in a dry run. Programs do not compare results where nothing is computed (core::Device::computes()); one that does, and
# reports wrong ones (status 7), has not failed. The stand-in's report has a line for each launch that it refused, and a last one.
# Records of nothing are not kept.
dry_verdict() {
  local report=$records/stand_in_report.txt launched refused error
  rm -f "$records"/*.json*
  launched=$(awk '$1 == "launched" { sum += $2 } END { print sum + 0 }' "$report" 2>/dev/null)
  refused=$(grep -m1 '^refused' "$report" 2>/dev/null)
  error=$(grep -m1 -E '\(cuda[A-Z]\w+\)' "$3")
  rm -f "$report"
  case $2 in
    124 | 137) verdict "$@" ;;
    *) if [ -n "$refused" ]; then echo "failed: a launch was $refused"
       elif [ -n "$error" ]; then echo "failed: $error"
       elif [[ $2 == [07] ]] && [ -n "$launched" ]; then echo "ran: $launched launches, results not computed"
       elif [ "$2" = 0 ]; then echo "failed: it did not use the stand-in"
       else verdict "$@"; fi ;;
  esac
}

# All records and logs, whole at any time, in few files.
pack() {
  cp "$log" "$out/gpu_check.log" 2>/dev/null
  tar -czf "$out/.packed" -C "$records" . 2>/dev/null
  mv -f "$out/.packed" "$out/records.tar.gz" 2>/dev/null
  summary_page
}
summary_page() {
  [ -z "$python" ] || timeout 10 "$python" "$scripts/gpu_targets.py" "$records" --page "$out/summary.html" >/dev/null 2>&1
}
pack_for_ever() { while sleep "$pack_every_s"; do pack; done; }

finish() {
  kill "$packer" 2>/dev/null
  wait "$packer" 2>/dev/null
  pack
  [ -z "$unpacked" ] || rm -rf "$unpacked"
  rm -rf "$records"
}

summary() {
  local name bad=0
  echo
  printf '%-18s %5s  %s\n' step s result
  for name in "${chosen[@]}"; do
    printf '%-18s %5s  %s\n' "$name" "${seconds[$name]}" "${result[$name]}"
    case ${result[$name]} in ok | left\ out* | ran*) ;; *) bad=$((bad + 1)) ;; esac
  done
  echo
  if [ -n "$no_gpu" ]; then echo "ci/gpu_check.sh: nothing ran on a GPU: $no_gpu"; return 3; fi
  [ $bad -eq 0 ] || { echo "ci/gpu_check.sh: $bad of ${#chosen[@]} steps failed; their output is in $out/gpu_check.log"; return 1; }
  echo "ci/gpu_check.sh: passed in $SECONDS s; log, summary.html and records.tar.gz are in $out"
}

read_steps
[ "${1-}" != --list ] || { list_steps; exit; }
[ $# -ge 2 ] || fail "needs BUNDLE and OUT, or --list"
chosen=("${@:3}")
for name in "${chosen[@]}"; do [ -n "${limit[$name]-}" ] || fail "no step '$name'; allowed: ${names[*]}"; done
[ ${#chosen[@]} -gt 0 ] || chosen=("${names[@]}")
mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd) bundle=$1 unpacked=""
records=$(mktemp -d)  # many files, of which OUT gets an archive: what carries results back may take but a few
log=$records/gpu_check.log
if [ -f "$bundle" ]; then
  unpacked=$(mktemp -d)
  bundle=$unpacked
  tar -xzf "$1" -C "$unpacked" || { rm -rf "$unpacked" "$records"; fail "$1 is not an archive of ci/gpu_build.sh"; }
fi
[ -f "$bundle/needs.txt" ] || { rm -rf "$records" "$unpacked"; fail "$1 is not what ci/gpu_build.sh makes: it has no needs.txt"; }
bundle=$(cd "$bundle" && pwd)
python=$(command -v "${PYTHON:-python3}" || true) sanitizer=$(find_tool compute-sanitizer) ncu=$(find_tool ncu) no_gpu="" dry=""
pack_for_ever </dev/null >/dev/null 2>&1 & packer=$!
trap finish EXIT
trap 'exit 143' TERM INT HUP
if [ -f "$bundle/stand_in.txt" ]; then
  dry=dry_
  for name in "${names[@]}"; do limit[$name]=$((3 * limit[$name])); done  # every rank needs a core
fi
hold_gpus
{ find_libraries; describe; } >"$log" 2>&1
grep -v '^ ' "$log" | head -n 40
for name in "${chosen[@]}"; do run_step "$name"; done
[ -z "$python" ] || timeout 10 "$python" "$scripts/gpu_targets.py" "$records" 2>&1 | tee -a "$log"
summary | tee -a "$log"
exit "${PIPESTATUS[0]}"
