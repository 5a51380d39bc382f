# SPDX-License-Identifier: Apache-2.0
# What scripts/tinygrad and scripts/numba share: a proof by a program that nobody here wrote. The
# program comes from the configured package index into .cache/PROGRAM and is checked against digests
# in tools/PROGRAM. Nothing of it is part of this repository. Its own test modules run on a software
# GPU: first with the library opened directly, then through `tendril run` over TCP and over shared
# memory. What passes directly must pass remotely. Without the index it ends with 77, or says so in
# the results. Sourced, never run. The script defines these and ends with `foreign_main "$@"`:
#   program, package  its name, and the package that its test modules are imported from
#   wanted            files in tools/PROGRAM that say what is fetched
#   modules, short_modules, short_shm_modules
#   fetch             fills $place: `venv`, an environment for Python, and `tests`, where modules
#                     run; not 0 without an index
#   all_modules       prints the modules, if `modules` is empty
#   environment WAY   exports what the program needs to find the library of a way
#   before_tests      what else it tries
# Its options:
#   --short           the modules that take seconds, fewer over shared memory
#   --build FOLDER    use the binaries in FOLDER instead of building build/release
#   --results FILE    a line `passed|failed|skipped NAME` for each test; one that fails directly
#                     counts, unless it is known to
#   MODULE...         instead of the lists
# TENDRIL_FOREIGN_TEST_SECONDS, TENDRIL_FOREIGN_MODULE_SECONDS: how long one test and the tests of a
# module may take.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

test_seconds=${TENDRIL_FOREIGN_TEST_SECONDS:-240}
module_seconds=${TENDRIL_FOREIGN_MODULE_SECONDS:-900}
folder=$root/build/release
short=""
results=""
server_pid=""

fail() {
  say "$program: $*" >&2
  exit 1
}

stop_server() {
  [ -n "$server_pid" ] || return 0
  kill "$server_pid" 2>/dev/null || true
  wait "$server_pid" 2>/dev/null || true
}

new_venv() {
  rm -rf "$place"
  mkdir -p "$place"
  python3 -m venv "$place/venv"
}

pip_quietly() { # COMMAND ARGUMENTS...
  local command=$1
  shift
  "$place/venv/bin/pip" --quiet --disable-pip-version-check --retries 1 --timeout 20 \
    "$command" --require-hashes "$@"
}

install_package() {
  [ ! -f "$place/ready" ] || return 0
  say "== $program from the package index"
  if fetch >"$cache/fetch.log" 2>&1 </dev/null; then
    touch "$place/ready"
    return 0
  fi
  local why
  why=$(grep -v '^ *$' "$cache/fetch.log" | tail -n 1 | cut -c1-160)
  say "$program: NOT RUN, it cannot be fetched: $why" >&2
  [ -n "$results" ] || exit 77
  why="it cannot be fetched from a package index: .cache/$program/fetch.log"
  echo "skipped $program ($why)" >>"$results"
  exit 0
}

build_all() {
  say "== build (release)"
  local results=/dev/null # these are not those of the tests
  configure release || exit 1
  build release bin/tendril bin/tendril-worker lib/libtendril-softgpu.so tendril_client || exit 1
}

start_server() {
  local i
  rm -f "$out/port"
  "$folder/bin/tendril" serve --driver "$folder/lib/libtendril-softgpu.so" --port 0 \
    --port-file "$out/port" >"$out/server.log" 2>&1 &
  server_pid=$!
  for ((i = 0; i < 300; ++i)); do
    [ ! -s "$out/port" ] || break
    kill -0 "$server_pid" 2>/dev/null ||
      fail "the server ended before it was ready: $(tail -n 5 "$out/server.log")"
    sleep 0.1
  done
  [ -s "$out/port" ] || fail "the server was not ready after 30 seconds"
  TENDRIL_SERVERS="127.0.0.1:$(grep -oE '[0-9]+' "$out/port" | tail -n 1)"
  export TENDRIL_SERVERS
}

python_by() { # WAY ARGUMENTS...
  local way=$1 command=()
  shift
  case "$way" in
    tcp | shm)
      command=(env TENDRIL_CLIENT_DIR="$folder/lib/client" TENDRIL_TRANSPORT="$way" TENDRIL_STATS=1
        "$folder/bin/tendril" run -n 4 -p 0.25 --)
      ;;
  esac
  (
    environment "$way"
    # A test that hangs in the library does not notice an alarm.
    exec timeout -k 10 $((module_seconds + 2 * test_seconds)) "${command[@]}" \
      "$place/venv/bin/python" -B "$@"
  )
}

# A client that cannot use shared memory continues over TCP, which would prove nothing here.
ways_in() { sed -n -E 's/^tendril: server [^ ]* over ([a-z]+):.*/\1/p' "$1" | sort -u; } # LOG

went_over() { # WAY LOG
  case "$1" in
    tcp | shm) [ "$(ways_in "$2")" = "$1" ] ;;
  esac
}

run_module() { # MODULE WAY
  local result=$out/tests/$1.$2 log=$out/tests/$1.$2.log status=0 went
  : >"$result"
  (cd "$place/tests" && python_by "$2" "$root/tools/foreign/run_module.py" "$package.$1" "$result" \
    "$test_seconds" "$module_seconds") >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" != 0 ]; then
    say "  $1 by $2 did not end well"
    echo "failed $1: its process ended with status $status" >>"$result"
  fi
  went=$(ways_in "$log")
  # It connects to nothing if it never calls the library.
  [ "${went:-$2}" = "$2" ] || echo "failed $1: it went over" $went >>"$result"
}

# Two at a time: a server of four GPUs has room for two programs with four quarters, and for two
# whose leases are just ending.
run_modules() { # WAY MODULE...
  local way=$1 module
  shift
  for module in "$@"; do
    [ "$(jobs -rp | grep -vcx "$server_pid")" -lt 2 ] || wait -n || true
    run_module "$module" "$way" &
    module_pids+=($!)
  done
}

run_tests() {
  local module_pids=() way bad=""
  say "== $program's own tests"
  mkdir -p "$out/tests"
  run_modules direct "${modules[@]}"
  run_modules tcp "${modules[@]}"
  run_modules shm "${shm_modules[@]}"
  wait "${module_pids[@]}" 2>/dev/null || true # bash forgets the oldest of many, and says so
  for way in tcp shm; do
    ! grep -q "^tendril: server [^ ]* over $way:" "$out"/tests/*."$way.log" || continue
    bad=1
    say "  FAILED $way: no module went over it"
    [ -z "$results" ] || echo "failed $program/$way (no module went over it)" >>"$results"
  done
  python3 -B "$root/tools/foreign/compare.py" "$program" "$out/tests" "${results:--}" \
    direct tcp shm && [ -z "$bad" ]
}

read_options() {
  local chosen=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --short) short=1 ;;
      --build) folder=$(cd "${2:?a folder}" && pwd); shift ;;
      --results) results=$(realpath -m "${2:?a file}"); shift ;;
      -*)
        say "$program: unknown option '$1' (known: --short, --build FOLDER, --results FILE)" >&2
        exit 2
        ;;
      *) chosen+=("$1") ;;
    esac
    shift
  done
  [ -z "$short" ] || modules=("${short_modules[@]}")
  shm_modules=("${short_shm_modules[@]}")
  [ ${#chosen[@]} = 0 ] || modules=("${chosen[@]}")
  [ -n "$short" ] && [ ${#chosen[@]} = 0 ] || shm_modules=()
}

foreign_main() {
  local status=0 shm_modules=()
  cache=$root/.cache/$program
  place=$cache/$(cd "$root/tools/$program" && cat "${wanted[@]}" | sha256sum | cut -c1-16)
  out=$cache/results
  read_options "$@"
  mkdir -p "$cache"
  install_package
  [ ${#modules[@]} -gt 0 ] || mapfile -t modules < <(all_modules)
  [ ${#shm_modules[@]} -gt 0 ] || shm_modules=("${modules[@]}")
  [ "$folder" != "$root/build/release" ] || build_all
  rm -rf "$out"
  mkdir -p "$out/direct"
  ln -s "$folder/lib/libtendril-softgpu.so" "$out/direct/libcuda.so.1"
  # Compiled kernels are kept between processes, but separate from the user's.
  export XDG_CACHE_HOME=$cache/kernels TENDRIL_SOFTGPU_DEVICES=4 TENDRIL_SOFTGPU_MEMORY_MB=2048
  trap stop_server EXIT
  start_server
  before_tests || status=1
  run_tests || status=1
  say ""
  if [ "$status" = 0 ]; then say "$program: all well"; else say "$program: FAILED"; fi
  exit "$status"
}
