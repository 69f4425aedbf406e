#!/bin/sh
# bundle.sh: packs the binary of a plan with the shared libraries that it loads, for hosts that have the C library alone:
# bundle.sh OUT.tar.gz BINARY FILE... The binary looks for libraries in lib/ next to it (its RPATH). The FILEs go beside it.
set -eu
out=$1 binary=$2
shift 2
name=$(basename "$out" .tar.gz)
folder=$(mktemp -d "${TMPDIR:-/tmp}/penstock-bundle.XXXXXX")
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/$name/lib"
cp "$binary" "$@" "$folder/$name"
missing=$(ldd "$binary" | sed -n 's/^[[:space:]]*\(.*\) => not found.*/\1/p')
if test -n "$missing"; then
  echo "bundle.sh: $binary: these libraries are not found:" $missing >&2
  exit 1
fi
# All but the C library's own, which belong to the kernel and the loader of the host.
ldd "$binary" | sed -n 's/^.* => \(\/[^ ]*\) .*/\1/p' | while read -r library; do
  case $(basename "$library") in
    ld-linux* | libc.so* | libm.so* | libmvec.so* | libpthread.so* | libdl.so* | librt.so* | libresolv.so* | libutil.so*) ;;
    *) cp -L "$library" "$folder/$name/lib" ;;
  esac
done
chmod -R u+w,go-w "$folder/$name"
# The same files give the same archive.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$folder" -cf - "$name" | gzip -9n >"$out.new"
mv -f "$out.new" "$out"
