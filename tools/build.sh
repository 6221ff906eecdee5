#!/usr/bin/env bash
# Configures a preset where that is needed, then builds targets of it with progress.
#   tools/build.sh PRESET [-DOPTION=VALUE...] [TARGET...]
# Options count only when the preset is configured. Without a target everything is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=$1
shift
options=() targets=()
for argument in "$@"; do
  if [[ $argument == -D* ]]; then options+=("$argument"); else targets+=("$argument"); fi
done

folder=build/$preset
cache=$folder/CMakeCache.txt
if [[ -f $cache ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$cache"; then
  printf 'masu: %s belongs to a checkout in another place; building afresh\n' "$folder" >&2
  rm -rf "$folder"
fi
is_configured() {
  [[ $folder/build.ninja -nt CMakePresets.json ]] || return 1
  local option
  for option in "${options[@]}"; do grep -qF "${option#-D}" <(sed 's/:[A-Z]*=/=/' "$cache") || return 1; done
}
is_configured || cmake --preset "$preset" "${options[@]}"

# One job per core, but no more than memory holds: the largest file needs almost 1 GiB to compile.
available_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
jobs=$((available_kib / 1048576))
((jobs < $(nproc))) || jobs=$(nproc)
((jobs > 0)) || jobs=1

export NINJA_STATUS='[%f/%t, %es] '
arguments=(--build "$folder" --parallel "$jobs")
((${#targets[@]} == 0)) || arguments+=(--target "${targets[@]}")
cmake "${arguments[@]}"
