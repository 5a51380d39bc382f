#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the conformance suite with one process per test suite, so that a crash or hang in one costs
# only that one. Usage: run_suites.sh BINARY [PREFIX...], e.g. run_suites.sh bin/tendril_conformance
# tendril run -- Environment as for the binary; OUT, if set, is a folder for one log and one
# transcript per suite.
binary=$1
shift
out=${OUT:-$(mktemp -d)}
failed=0
suites=$("$@" "$binary" --gtest_list_tests | sed -n 's/^\([^ ]*\)\.$/\1/p')
[ -n "$suites" ] || { echo "the suites cannot be listed: is there a driver?" >&2; exit 2; }
for suite in $suites; do
  name=$(echo "$suite" | tr / _)
  rm -f "$out/$name.transcript"
  TENDRIL_CONFORMANCE_TRANSCRIPT=$out/$name.transcript timeout 300 \
    "$@" "$binary" --gtest_filter="$suite.*" >"$out/$name.log" 2>&1
  status=$?
  passed=$(grep -c '^\[       OK \]' "$out/$name.log")
  skipped=$(grep -c '^\[  SKIPPED \].*ms)' "$out/$name.log")
  echo "$suite: status $status, passed $passed, skipped $skipped"
  if [ $status -ne 0 ]; then
    failed=$((failed + 1))
    grep -B12 '^\[  FAILED  \].*ms)' "$out/$name.log"
    [ $status -gt 1 ] && tail -5 "$out/$name.log"
  fi
done
echo "$failed suites failed; logs in $out"
[ $failed -eq 0 ]
