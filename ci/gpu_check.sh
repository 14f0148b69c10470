#!/usr/bin/env bash
# On a machine with a GPU: tests, then benchmarks, then comparisons, from what ci/gpu_build.sh has made elsewhere; under 9
# minutes, the most important first. Needs bash, coreutils and a driver; cuBLASLt, NCCL, Python, PyTorch if they are there.
#   ci/gpu_check.sh BUNDLE OUT [STEP...]   BUNDLE: the folder or the archive; OUT: a folder for records and the log
#   ci/gpu_check.sh --list                 the steps and their time limits
# Environment: SANITIZE=1 (small cases under compute-sanitizer instead), PYTHON (python3), CUDA_FOLDERS (where CUDA may be).
# Status: 0 all that could run is well, 1 a step failed or took too long, 2 wrong usage, 3 no GPU: nothing could run.
set -uo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
steps_file=${STEPS_FILE:-$scripts/gpu_$([ "${SANITIZE:-0}" = 1 ] && echo sanitize_)steps.txt}
cuda_folders=${CUDA_FOLDERS:-${CUDA_HOME:-} /usr/local/cuda /usr/local/cuda-*}
budget_s=${BUDGET_S:-530}
PATH=$PATH:/usr/sbin:/sbin

fail() { echo "ci/gpu_check.sh: $*" >&2; exit 2; }

# Steps: of each its limit in seconds, what it needs, and its command.
names=()
declare -A limit needs command result seconds
read_steps() {
  local name a_limit a_needs a_command
  while IFS='|' read -r name a_limit a_needs a_command; do
    [[ $name =~ ^\ *(#|$) ]] && continue
    name=${name// /}
    names+=("$name")
    limit[$name]=${a_limit// /} needs[$name]=$a_needs command[$name]=$a_command
  done <"$steps_file"
}

list_steps() {
  local name sum=0
  for name in "${names[@]}"; do
    printf '%-18s %4s s %s\n' "$name" "${limit[$name]}" "${command[$name]}"
    sum=$((sum + limit[$name]))
  done
  echo "together at most $sum s"
}

# is_at_least VERSION LEAST
is_at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# folders_of LIBRARY: by whom it was found, "system", "CUDA" or "Python", and where it lies, a line each.
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

# folder_of LIBRARY: the first of them, of NCCL the first of the newest, as a step may need what an older one lacks; fails
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

# Of each library that the bundle's programs need from outside: its folder, in found_folders, or that it is missing.
declare -A missing
found_folders="" nccl_version=""
find_libraries() {
  local library found
  for library in $(cut -s -d' ' -f2- "$bundle/needs.txt" | tr ' ' '\n' | sort -u); do
    if found=$(folder_of "$library"); then
      echo "$library: ${found#* } (${found%% *})"
      found_folders+=:${found#* }
      [[ $library != libnccl* ]] || nccl_version=$(version_of_nccl "${found#* }/$library")
    else
      echo "$library: not found in the system, CUDA or Python packages"
      missing[$library]=1
    fi
  done
  [ -z "$nccl_version" ] || echo "NCCL $nccl_version"
}

version_of_nccl() { grep -aoEm1 'NCCL version [0-9]+\.[0-9]+(\.[0-9]+)?' "$1" 2>/dev/null | head -n 1 | cut -d' ' -f3; }

find_sanitizer() {
  local folder path
  for path in "$(command -v compute-sanitizer || true)" $cuda_folders; do
    [ ! -d "$path" ] || path+=/bin/compute-sanitizer
    [ ! -x "$path" ] || { echo "$path"; return; }
  done
}

# The machine, as it says itself: for the log's reader, nothing depends on it.
describe() {
  local gpus
  gpus=$(timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null) ||
    gpus="nvidia-smi does not answer"
  echo "GPU: $gpus"
  echo "python: ${python:-none}, sanitizer: ${sanitizer:-none}"
}

# why_not STEP: one line on what it lacks; nothing if it can run.
why_not() {
  local need program library words
  [[ -z $no_gpu || ${needs[$1]} != *gpu* ]] || { echo "$no_gpu"; return; }
  read -ra words <<<"${command[$1]}"  # does not expand what looks like a pattern of files
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

# lacks NEED: says what is lacking; fails if nothing is.
lacks() {
  case $1 in
    - | gpu) return 1 ;;
    python) [ -z "$python" ] && echo "there is no python3" ;;
    torch) ! has_torch && echo "${python:-python3} has no PyTorch" ;;
    sanitizer) [ -z "$sanitizer" ] && echo "compute-sanitizer was not found" ;;
    nccl*) ! is_at_least "${nccl_version:-0}" "${1#*=}" && echo "NCCL is ${nccl_version:-unknown}; allowed: ${1#*=} or newer" ;;
    flag:*) lacks_flag "${1#flag:}" && echo "${1#flag:} is not there" ;;
    *) echo "the table asks for '$1', which is unknown" ;;
  esac
}

has_torch() {
  [ -n "$python" ] && "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'
}
lacks_flag() {  # PROGRAM:FLAG
  local help
  help=$(LD_LIBRARY_PATH=$(library_path) timeout 10 "$bundle/bin/${1%%:*}" --help 2>/dev/null)
  [[ $help != *"${1#*:}"* ]]
}

library_path() { echo "$bundle/lib$found_folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"; }

# run_step NAME: what became of it goes to result[NAME], its output to the log.
run_step() {
  local name=$1 status start=$SECONDS output=$out/output.tmp why
  why=$(why_not "$name")
  [ "$(seconds_for "$name")" -gt 0 ] || why="the time of all steps, $budget_s s, was over"
  if [ -n "$why" ]; then
    result[$name]="left out: $why" seconds[$name]=0
    return
  fi
  printf '%s ... ' "$name"
  limited "$name" >"$output" 2>&1 </dev/null
  status=$?
  seconds[$name]=$((SECONDS - start))
  result[$name]=$(verdict "$name" "$status" "$output")
  echo "${result[$name]}, ${seconds[$name]} s"
  { echo "===== $name: ${result[$name]}"; cat "$output"; } >>"$log"
  case ${result[$name]} in
    ok) tail -n 8 "$output" ;;
    left\ out*) ;;
    *) tail -n 25 "$output" ;;
  esac
  [ -n "$no_gpu" ] || no_gpu=$(grep -om1 'no CUDA device: .*' "$output")
  rm -f "$output"
}

# A program that hangs gets SIGTERM at its limit, with all that it started, and SIGKILL 5 s later.
limited() {
  local word given words=()
  # Python brings its own libraries, which the bundle's must not replace.
  [[ ${command[$1]} == *'{python}'* ]] || words=("LD_LIBRARY_PATH=$(library_path)")
  read -ra given <<<"${command[$1]}"
  for word in "${given[@]}"; do
    word=${word//'{B}'/$bundle} word=${word//'{O}'/$out} word=${word//'{S}'/$scripts} word=${word//'{python}'/$python}
    words+=("${word//'{sanitizer}'/$sanitizer}")
  done
  timeout --kill-after=5 "$(seconds_for "$1")" env "${words[@]}"
}

# Its limit, or what is left of all time.
seconds_for() { echo $((limit[$1] < budget_s - SECONDS ? limit[$1] : budget_s - SECONDS)); }

# A test program without a GPU skips all of its tests and says that none has passed.
verdict() {
  case $2 in
    0) if ! grep -q '^\[  PASSED  \] 0 tests' "$3"; then echo ok; else
         echo "left out: $(grep -om1 'no CUDA device: .*' "$3" || echo "its tests were skipped")"
       fi ;;
    124 | 137) echo "killed: it took more than ${limit[$1]} s" ;;
    *) echo "failed with status $2" ;;
  esac
}

summary() {
  local name bad=0
  echo
  printf '%-18s %5s  %s\n' step s result
  for name in "${chosen[@]}"; do
    printf '%-18s %5s  %s\n' "$name" "${seconds[$name]}" "${result[$name]}"
    case ${result[$name]} in ok | left\ out*) ;; *) bad=$((bad + 1)) ;; esac
  done
  echo
  if [ -n "$no_gpu" ]; then echo "ci/gpu_check.sh: nothing ran on a GPU: $no_gpu"; return 3; fi
  [ $bad -eq 0 ] || { echo "ci/gpu_check.sh: $bad of ${#chosen[@]} steps failed; their output is in $log"; return 1; }
  echo "ci/gpu_check.sh: passed in $SECONDS s; records and log are in $out"
}

read_steps
[ "${1-}" != --list ] || { list_steps; exit; }
[ $# -ge 2 ] || fail "needs BUNDLE and OUT, or --list"
chosen=("${@:3}")
for name in "${chosen[@]}"; do [ -n "${limit[$name]-}" ] || fail "no step '$name'; allowed: ${names[*]}"; done
[ ${#chosen[@]} -gt 0 ] || chosen=("${names[@]}")
mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd) bundle=$1
log=$out/gpu_check.log
if [ -f "$bundle" ]; then
  unpacked=$(mktemp -d) && trap 'rm -rf "$unpacked"' EXIT
  tar -xzf "$1" -C "$unpacked" || fail "$1 is not an archive of ci/gpu_build.sh"
  bundle=$unpacked
fi
[ -f "$bundle/needs.txt" ] || fail "$1 is not what ci/gpu_build.sh makes: it has no needs.txt"
bundle=$(cd "$bundle" && pwd)
python=$(command -v "${PYTHON:-python3}" || true) sanitizer=$(find_sanitizer) no_gpu=""
{ describe; find_libraries; } >"$log" 2>&1
cat "$log"
for name in "${chosen[@]}"; do run_step "$name"; done
summary | tee -a "$log"
exit "${PIPESTATUS[0]}"
