#!/bin/sh
# deb.sh: makes a Debian package of an installed tree: deb.sh ROOT VERSION FOLDER, where ROOT holds what make install puts below /usr, and
# FOLDER receives penstock_VERSION_ARCHITECTURE.deb. DEBFULLNAME and DEBEMAIL name its maintainer. It needs dpkg-dev.
set -eu
root=$1 version=$2 folder=$3
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(cd "$folder" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
cp -R "$root" "$work/root"
cd "$work/root"
maintainer="${DEBFULLNAME:-The authors of Penstock} <${DEBEMAIL:-penstock@example.org}>"
architecture=$(dpkg --print-architecture)
date=$(LC_ALL=C date -u -R -d "$(sed -n 's/^\.Dd //p' "$here/man/penstock.1.in")")
SOURCE_DATE_EPOCH=$(date -u -d "$date" +%s) # dpkg-deb gives no file a later time: the same files make the same package
export SOURCE_DATE_EPOCH
chmod -R u+rwX,go+rX,go-w .
for program in usr/bin/*; do
  if objdump -h "$program" >/dev/null 2>&1; then strip --strip-unneeded -R .comment -R .note "$program"; fi
done
if test -d usr/lib/penstock; then strip --strip-debug --enable-deterministic-archives usr/lib/penstock/*.a; fi
# Debian's Python, not the first one that a user's PATH has.
python=
for program in usr/bin/*; do
  if head -n 1 "$program" | grep -aq '^#!/usr/bin/env python3$'; then
    python=', python3'
    LC_ALL=C sed -i '1s|.*|#!/usr/bin/python3|' "$program"
  fi
done
gzip -9n usr/share/man/man*/*
documents=usr/share/doc/penstock
mkdir -p $documents/examples
cp "$here"/docs/examples/* $documents/examples
chmod 644 $documents/examples/*
gzip -9n <"$here/NEWS" >$documents/NEWS.gz
cat >$documents/copyright <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: penstock

Files: *
Copyright: 2026 the authors of Penstock
License: private
 This package is for the clusters of those who have the sources; they decide
 on its distribution.
END
printf 'penstock (%s) unstable; urgency=medium\n\n  * What changed is in NEWS.gz.\n\n -- %s  %s\n' \
  "$version" "$maintainer" "$date" | gzip -9n >$documents/changelog.gz
# A small plan is generated in less time by a program that loads no libraries; it is position-independent as they are.
mkdir -p usr/share/lintian/overrides
echo 'penstock: shared-library-lacks-prerequisites [usr/bin/penstock-gen]' >usr/share/lintian/overrides/penstock

# The shared libraries that the programs load.
mkdir -p "$work/debian" DEBIAN
printf 'Source: penstock\n\nPackage: penstock\nArchitecture: %s\n' "$architecture" >"$work/debian/control"
depends=$(cd "$work" && find root/usr/bin -type f | while read -r program; do
  if objdump -h "$program" >/dev/null 2>&1; then echo "$program"; fi
done | xargs dpkg-shlibdeps -O --ignore-missing-info 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
cat >DEBIAN/control <<END
Package: penstock
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -k -s usr | cut -f1)
Depends: ${depends:-libc6}$python
Recommends: openssh-client, gcc, libc6-dev, libjansson-dev, nettle-dev, libfabric-dev
Section: science
Priority: optional
Description: generator of pipeline-parallel training plans
 Penstock turns a topology (pipeline ranks, stages, microbatches, shapes,
 schedule) into static tables with every action of every rank and the place
 of every byte, verifies them and predicts their time and memory. This
 package has the generator, penstock-gen, and the tools that make token files,
 convert models of Hugging Face and start a plan on several hosts.
END
find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums
dpkg-deb --root-owner-group --build . "$folder" >/dev/null
