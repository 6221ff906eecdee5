#!/usr/bin/env bash
# Installs the Debian 12 packages that masu needs, and only those that are missing.
#   tools/install_packages.sh          to build and run
#   tools/install_packages.sh --tests  to run ./test.sh as well
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config)
run=(python3 python3-venv ca-certificates curl)
libraries=(libboost1.81-dev libpcre2-dev libutf8proc-dev libfmt-dev libspdlog-dev nlohmann-json3-dev
  libsimdjson-dev libvalijson-dev libcli11-dev prometheus-cpp-dev libcurl4-openssl-dev libssl-dev libxxhash-dev)
tests=(git libgtest-dev libgmock-dev clang libclang-rt-14-dev clang-format clang-tidy shellcheck)

say() { printf 'masu: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

missing_of() {
  local name status
  for name in "$@"; do
    status=$(dpkg-query -W -f='${db:Status-Abbrev}' "$name" 2>/dev/null || true)
    [[ $status == ii* ]] || printf '%s\n' "$name"
  done
}

wanted=("${build[@]}" "${run[@]}" "${libraries[@]}")
case ${1:-} in
  '') ;;
  --tests) wanted+=("${tests[@]}") ;;
  *) die "unknown argument '$1'; the only one is --tests" ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  say "this is not Debian, nothing is installed; the build needs what Debian 12 calls: ${wanted[*]}"
  exit 0
fi

mapfile -t missing < <(missing_of "${wanted[@]}")
if ((${#missing[@]} == 0)); then
  say "packages: all ${#wanted[@]} are installed"
  exit 0
fi

say "packages to install with apt-get (${#missing[@]} of ${#wanted[@]} are missing):"
for name in "${missing[@]}"; do
  case " ${build[*]} " in *" $name "*) why="builds masu" ;; *)
    case " ${run[*]} " in *" $name "*) why="fetches the model, asks the question" ;; *)
      case " ${tests[*]} " in *" $name "*) why="tests and checks of the sources" ;; *)
        why="library that masu is built on" ;;
      esac ;;
    esac ;;
  esac
  printf '        %-22s %s\n' "$name" "$why" >&2
done

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    die "neither root nor sudo is available: run 'apt-get install ${missing[*]}' as root, then try again"
  if [[ -t 0 ]]; then
    as_root=(sudo)
    say "sudo may ask for your password"
  else
    as_root=(sudo -n)
    sudo -n true 2>/dev/null ||
      die "sudo needs a password and there is no terminal: run 'sudo apt-get install ${missing[*]}' first"
  fi
fi

# A lock held by another apt (unattended upgrades on a fresh machine) is waited for.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
"${apt[@]}" update >&2 || say "apt-get update failed; trying with the lists that are there"
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >&2 ||
  die "apt-get could not install the packages (its message is above); package names are those of Debian 12"
