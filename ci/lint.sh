#!/usr/bin/env bash
# Formatting, includes, each source compiled alone and clang-tidy, tests among the sources; with --fix, formats the files in place first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=/usr/bin/python3
mapfile -t files < <("$python" ci/source_tree.py)
case "${1-}" in
  "") ;;
  --fix) clang-format-14 -i "${files[@]}" ;;
  *) echo "ci/lint.sh: unknown argument '$1'; allowed: --fix" >&2; exit 2 ;;
esac
cmake --preset dev >/dev/null
clang-format-14 --dry-run -Werror "${files[@]}"
echo "format: ${#files[@]} files"
"$python" ci/check_includes.py
"$python" ci/check_words.py
"$python" ci/check_alone.py --build build/dev
"$python" ci/tidy.py --build build/dev --tests
