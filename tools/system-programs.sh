#!/bin/sh
# Install the system programs named as arguments where this is root on Debian; elsewhere, name what is missing.
missing=""
for program in "$@"; do
  command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = "0" ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing:$missing"
  apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null && exit 0
  echo "could not install:$missing (the tests that need them will skip)" >&2
  exit 0
fi
echo "missing system programs:$missing. On Debian: sudo apt-get install$missing. Tests that need them skip." >&2
exit 0
