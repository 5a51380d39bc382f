# SPDX-License-Identifier: Apache-2.0
# What scripts/test, scripts/longtest, scripts/demo, scripts/foreign.sh, scripts/tidy and
# scripts/alone share: where things are, building with a log, and results that add up. Sourced,
# never run. A result is one line "passed|failed|skipped NAME" in $results, from which the last line
# is computed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/build/logs
jobs=${TENDRIL_JOBS:-$(nproc)}
export CMAKE_BUILD_PARALLEL_LEVEL=$jobs

say() { printf '%s\n' "$*"; }

# Runs a command with its output in $logs/NAME.log. On failure shows the end of it.
logged() {
  local name=$1 status=0 began=$SECONDS
  shift
  mkdir -p "$logs"
  "$@" >"$logs/$name.log" 2>&1 </dev/null || status=$?
  if [ "$status" = 0 ]; then
    printf '  %-28s %4d s\n' "$name" $((SECONDS - began))
  else
    printf '  %-28s %4d s   FAILED (status %d); ' "$name" $((SECONDS - began)) "$status"
    say "the end of build/logs/$name.log:"
    grep -nE 'error:|FAILED:|CMake Error' "$logs/$name.log" | head -n 20 | cut -c1-200 |
      sed 's/^/    /' || true
    tail -n 25 "$logs/$name.log" | cut -c1-200 | sed 's/^/    /'
  fi
  return "$status"
}

result() { printf '%s %s\n' "$1" "$2" >>"$results"; }

# The same, but counted as a test if it fails. A build that breaks must not look like missing tests.
step() {
  if logged "$@"; then
    return 0
  fi
  result failed "$1"
  return 1
}

configure() { # PRESET
  step "configure-$1" cmake -S "$root" --preset "$1" \
    -DTENDRIL_QUICK_BUILD="${TENDRIL_QUICK_BUILD:-OFF}" \
    -DTENDRIL_WERROR="${TENDRIL_WERROR:-OFF}"
}

build() { # PRESET [TARGET...]
  local preset=$1
  shift
  local targets=()
  [ $# = 0 ] || targets=(--target "$@")
  step "build-$preset" cmake --build "$root/build/$preset" "${targets[@]}" -- -k 0
}

# Runs ctest in a folder of a build and adds every test to the results. Two slots for a job, because
# most tests wait for something; those that do not take two (PROCESSORS). Several may run at once:
# what one says and adds stays together. NAME FOLDER [ctest options]
run_ctest() {
  local name=$1 folder=$2 status=0 began=$SECONDS
  shift 2
  mkdir -p "$logs"
  rm -f "$logs/$name.xml"
  ctest --test-dir "$folder" --timeout "${TENDRIL_TEST_TIMEOUT:-180}" -j $((jobs * 2)) \
    --output-on-failure --output-junit "$logs/$name.xml" "$@" \
    >"$logs/$name.log" 2>&1 </dev/null || status=$?
  python3 -B "$root/tools/test_results.py" read "$name" "$logs/$name.xml" "$status" \
    >"$logs/$name.results"
  cat "$logs/$name.results" >>"$results"
  printf '  %-28s %4d s   %s\n' "$name" $((SECONDS - began)) \
    "$(python3 -B "$root/tools/test_results.py" brief "$name" "$results")"
  if [ "$status" != 0 ]; then
    # Which test failed, and what it said.
    local bad=': Failure$|^FAIL: |ERROR: |runtime error: |\*\*\*(Failed|Timeout|Exception|Not Run)'
    bad+='|^[A-Za-z.]*(Error|Exception|Expired)(:|$)'
    grep -E "$bad" "$logs/$name.log" |
      cut -c1-240 | head -n 60 | sed 's/^/    /' || true
  fi
}

# Runs scripts/PROGRAM, other people's tests (scripts/foreign.sh), and adds theirs to the results.
# PROGRAM [its options]
run_foreign() {
  local program=$1 found=$logs/$1.results status=0 before
  shift
  rm -f "$found"
  before=$(wc -l <"$results")
  logged "$program" "$root/scripts/$program" --results "$found" "$@" || status=$?
  [ ! -f "$found" ] || cat "$found" >>"$results"
  if [ "$status" != 0 ]; then
    result failed "$program (status $status)"
  elif [ "$(wc -l <"$results")" = "$before" ]; then
    result failed "$program (no results)"
  fi
  sed -n "s/^skipped $program (\(.*\))/  $program WAS NOT RUN: \1/p" "$found" 2>/dev/null || true
  python3 -B "$root/tools/test_results.py" brief "$program" "$results" | sed "s/^/  $program: /"
}

# Puts the sources that are meant into $sources: what differs from main, committed or not; with
# --all every one; or the files that are named. FILTER reads names and writes those that count.
choose_sources() { # PROGRAM FILTER [--all | FILE...]
  local program=$1 filter=$2
  shift 2
  case "${1:-}" in
    --all) mapfile -t sources < <(git ls-files | "$filter") ;;
    -*) say "$program: unknown option '$1' (known: --all)" >&2; return 2 ;;
    "")
      mapfile -t sources < <({
        git diff --name-only --diff-filter=d "$(git merge-base main HEAD)"
        git ls-files --others --exclude-standard
      } | "$filter")
      ;;
    *) sources=("$@") ;;
  esac
  [ ${#sources[@]} != 0 ] || say "$program: no sources"
}

# Runs every libFuzzer target of the fuzz preset for this many seconds, with its corpus if the
# repository has one. As many run at once as there are jobs.
run_fuzzers() { # SECONDS SEED (0: another one each time)
  local seconds=$1 seed=$2 targets=() target
  configure fuzz || return 0
  local programs='s/^([^ :]*_fuzz): CXX_EXECUTABLE_LINKER.*/\1/p'
  mapfile -t targets < <(ninja -C "$root/build/fuzz" -t targets all | sed -nE "$programs" | sort -u)
  if [ ${#targets[@]} = 0 ]; then
    say "  no fuzz targets"
    result failed fuzz-targets
    return 0
  fi
  build fuzz "${targets[@]}" || return 0
  mkdir -p "$root/build/fuzz/found"
  for target in "${targets[@]}"; do
    [ -x "$root/build/fuzz/$target" ] || continue # an alias of one that was seen
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    run_fuzzer "$target" "$seconds" "$seed" &
  done
  wait
}

run_fuzzer() { # TARGET SECONDS SEED
  local name corpus status=0
  name=$(basename "$1")
  mkdir -p "$root/build/fuzz/corpus/$name"
  corpus=("$root/build/fuzz/corpus/$name")
  [ ! -d "$root/tests/corpus/$name" ] || corpus+=("$root/tests/corpus/$name")
  logged "fuzz-$name" "$root/build/fuzz/$1" -max_total_time="$2" -seed="$3" -timeout=10 \
    -rss_limit_mb=2048 -artifact_prefix="$root/build/fuzz/found/$name-" "${corpus[@]}" || status=$?
  if [ "$status" = 0 ]; then result passed "fuzz.$name"; else result failed "fuzz.$name"; fi
}

# Prints failures and one line for other programs. The exit status is that of the whole run.
summary() {
  say ""
  python3 -B "$root/tools/test_results.py" total "$results"
}
