#!/bin/sh
# Makes the base of the images from Debian's packages: Debian bookworm with Python 3.11, as localhost/hopforge/base.
# Needs root, debootstrap, and podman. Usage: base.sh IMAGE [BUILDER] [MIRROR]
set -eu
image=$1 builder=${2:-podman} mirror=${3:-http://deb.debian.org/debian}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$folder/root
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,libgomp1,libnuma1 bookworm "$root" "$mirror"
# The C library's locales and the packages' own licences stay; lists, caches, logs and manuals go.
find "$root/usr/share/doc" -type f ! -name copyright -delete
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/cache/debconf/* "$root"/var/log/* \
  "$root"/usr/share/man/* "$root"/usr/share/info/*
tar --create --directory "$root" . | "$builder" import --quiet - "$image"
