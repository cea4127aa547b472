#!/bin/sh
# The last step of installing packages: what no process needs goes, and what is left must fit together.
# LEFT_OUT names packages that others ask for but that must not be there.
set -eu
venv=$1
for name in ${LEFT_OUT:-}; do
  pip uninstall --quiet --yes "$name"
done
pip check > check.txt || true
# The runtime of a package of which only the weights are used (see requirements.py).
for name in ${LEFT_OUT:-} llm llama-cpp-python; do
  sed -i "/ requires $name, which is not installed\.$/d" check.txt
done
if grep -v '^No broken requirements found\.$' check.txt; then
  exit 1
fi
# Tests of other packages, headers and static libraries.
find "$venv" -type d \( -name tests -o -path '*/torch/include' \) -prune -exec rm -rf {} +
find "$venv" -type f -name '*.a' -delete
