#!/bin/sh
# deb.t: make deb makes a package that lintian accepts, whose generator runs from where it is unpacked.
. "${top_srcdir:-.}/tests/support/lib.sh"
for program in dpkg-deb dpkg-shlibdeps objdump; do
  command -v $program >/dev/null || skip_all "no $program here"
done
version=$("$gen" --version | sed 's/.* //')
mkdir -p "$scratch/root/usr/bin" "$scratch/root/usr/share"
cp "$top_builddir/penstock-gen" "$top_builddir/penstock-tokens" "$top_builddir/penstock-convert" "$top_builddir/penstock-plan" "$top_srcdir/tools/penstock-launch" "$scratch/root/usr/bin"
if test -x "$top_builddir/penstock-report"; then
  cp "$top_builddir/penstock-report" "$scratch/root/usr/bin"
fi
for section in 1 5 7; do
  mkdir -p "$scratch/root/usr/share/man/man$section"
  cp "$top_srcdir"/man/*.$section "$scratch/root/usr/share/man/man$section"
done
deb() { sh "$top_srcdir/tools/deb.sh" "$scratch/root" "$version" "$scratch"; }
ok "a package is made" deb
package=$(echo "$scratch"/penstock_"${version}"_*.deb)
mv "$package" "$scratch/first"
sleep 1.1
ok "again" deb
ok "with the same bytes" cmp "$scratch/first" "$package"
if command -v lintian >/dev/null; then
  is "lintian has nothing to say" "$(LC_ALL=C lintian --fail-on error,warning "$package" 2>&1 | grep -E '^[EW]:')" ""
else
  skip "lintian" "it is not installed"
fi
mkdir "$scratch/unpacked"
ok "it is unpacked" dpkg-deb -x "$package" "$scratch/unpacked"
is "its generator runs" "$("$scratch/unpacked/usr/bin/penstock-gen" --version)" "$("$gen" --version)"
if test -x "$top_builddir/penstock-report"; then
  is "its report runs" "$("$scratch/unpacked/usr/bin/penstock-report" --version)" "penstock-report $version"
  matches "it depends on Python" "$(dpkg-deb -f "$package" Depends)" "*python3*"
fi
. "$top_srcdir/tests/support/hardened.sh"
if test -z "$(no_hardening)"; then
  for program in gen plan tokens convert; do ok "its penstock-$program is hardened" is_hardened "$scratch/unpacked/usr/bin/penstock-$program"; done
else
  skip "its programs are hardened" "$(no_hardening)"
fi
matches "it depends on libraries" "$(dpkg-deb -f "$package" Depends)" "*libc6*"
finish
