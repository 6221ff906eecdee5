#!/usr/bin/env bash
# From a fresh Debian 12 to a streaming answer; see usage below.
# shellcheck disable=SC2317  # functions that only traps call
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: ./quickstart.sh [--once] [--port N] [--help]

Installs what is missing (as root or with sudo), builds masu, fetches SmolLM2-135M-Instruct, serves it
with its KV cache in fp8 pages within 1 GiB, asks one question, and keeps serving until Ctrl-C.

  --once     stop after the answer; the exit status is 0 only if it came
  --port N   serve on this port (default: 8000, or a free one if 8000 is taken)
  --help     print this

Environment: MASU_HOME   folder for the model, default ~/.cache/masu
TEXT
}
say() { printf 'masu: %s\n' "$*"; }
die() {
  printf 'masu: %s\n' "$*" >&2
  exit 1
}

once=0 port=''
while (($#)); do
  case $1 in
    --once) once=1 ;;
    --port)
      (($# > 1)) || die "--port needs a number; see ./quickstart.sh --help"
      port=$2
      shift
      ;;
    --port=*) port=${1#--port=} ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) die "unknown argument '$1'; see ./quickstart.sh --help" ;;
  esac
  shift
done
if [[ -n $port ]]; then
  if ! [[ $port =~ ^[0-9]{1,5}$ ]] || ((10#$port < 1 || 10#$port > 65535)); then
    die "--port takes a number from 1 to 65535, not '$port'"
  fi
  port=$((10#$port))
fi

cd "$(dirname "${BASH_SOURCE[0]}")"

server='' follower='' asker='' log='' serving=0
stop_follower() {
  [[ -z $follower ]] || kill "$follower" 2>/dev/null || true
  [[ -z $follower ]] || wait "$follower" 2>/dev/null || true
  follower=''
}
stop_server() {
  stop_follower
  [[ -z $asker ]] || kill "$asker" 2>/dev/null || true
  [[ -n $server ]] || return 0
  kill -TERM "$server" 2>/dev/null || true
  # A server that hangs must not outlive this script.
  for _ in {1..100}; do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  server=''
}
on_exit() {
  stop_server
  [[ -z $log ]] || rm -f "$log"
}
# Ctrl-C while serving is the ordinary end; before that the command was cut short.
on_interrupt() {
  printf '\n'
  say "stopping"
  exit "$((serving ? 0 : 130))"
}
trap on_exit EXIT
trap on_interrupt INT
trap 'exit 143' TERM HUP

follow_log() {
  tail -n "+$1" -f "$log" --pid="$server" 2>/dev/null &
  follower=$!
}

is_free() {
  python3 - "$1" <<'PYTHON'
import socket, sys
with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("127.0.0.1", int(sys.argv[1])))
    except OSError as error:
        sys.exit(f"masu: port {sys.argv[1]}: {error.strerror}")
    print(probe.getsockname()[1])
PYTHON
}

choose_port() {
  if [[ -n $port ]]; then
    is_free "$port" >/dev/null || die "choose another port with --port, or leave --port out"
  elif is_free 8000 >/dev/null 2>&1; then
    port=8000
  else
    port=$(is_free 0)
    say "port 8000 is taken, using $port"
  fi
}

start_server() {
  log=$(mktemp)
  local command=(build/release/masu serve "$model" --port "$port"
    --kv-cache-dtype fp8 --kv-cache-memory-bytes 1GiB)
  say "starting: ${command[*]}"
  # The kernel ends the server if this script is killed outright.
  if command -v setpriv >/dev/null; then command=(setpriv --pdeathsig TERM "${command[@]}"); fi
  "${command[@]}" >"$log" 2>&1 </dev/null &
  server=$!
  follow_log 1
}

wait_until_ready() {
  local started=$SECONDS answer last=''
  while ! answer=$(curl -s --noproxy '*' -m 5 -w '\n%{http_code}' "$url/health") || [[ ${answer##*$'\n'} != 200 ]]; do
    if ! kill -0 "$server" 2>/dev/null; then
      stop_follower
      die "the server stopped before it was ready; its last line: $(tail -n 1 "$log")"
    fi
    ((SECONDS - started < 300)) || die "the server was not ready after 300 s; its last line: $(tail -n 1 "$log")"
    answer=${answer%$'\n'*}
    [[ -z $answer || $answer == "$last" ]] || say "loading: $answer"
    last=$answer
    sleep 0.2
  done
  sleep 0.2 # for the last lines of the log
  stop_follower
  say "ready after $((SECONDS - started)) s at $url"
}

# The server prints a table of what fits before it is ready and marks the encoding in use with ">".
print_capacity() {
  local line
  line=$(sed -nE 's/^> ([a-z0-9_]+) +([a-z]+) .* ([0-9,]+ tokens).*/\3 in 1 GiB at \1, \2 scales/p' "$log")
  [[ -n $line ]] || die "the server printed no capacity table; its log: $log"
  say "capacity: $line"
}

tools/install_packages.sh
say "building (the first time takes some minutes, later ones seconds)"
# Without tests a bare machine needs no test libraries; a folder that was configured with them is taken as it is.
if [[ -f build/release/build.ninja ]]; then tools/build.sh release masu; else tools/build.sh release -DMASU_TESTS=OFF masu; fi
model=$(tools/fetch_model.sh)
choose_port
url=http://127.0.0.1:$port
start_server
wait_until_ready

question="What is the capital of France?"
say "asking: $question"
printf '\n        '
# In the background, since bash runs a trap only when no command is in the foreground.
tools/ask.py --url "$url" "$question" &
asker=$!
wait "$asker" || die "the answer did not come; the server's last line: $(tail -n 1 "$log")"
asker=''
printf '\n'
print_capacity
((once == 0)) || exit 0

cat <<TEXT

masu: serving at $url until Ctrl-C. From another terminal:
        curl $url/v1/chat/completions -H 'Content-Type: application/json' \\
          -d '{"messages": [{"role": "user", "content": "Hello!"}], "stream": true}'

TEXT
serving=1
follow_log "$(($(wc -l <"$log") + 1))"
status=0
wait "$server" || status=$?
server=''
stop_follower
die "the server stopped by itself with status $status; its last line: $(tail -n 1 "$log")"
