#!/bin/sh
# bundle.t: the bundle of a plan runs in a root that holds the C library alone; the example of a systemd unit is valid.
. "${top_srcdir:-.}/tests/support/lib.sh"
cat >"$scratch/mlp.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
optimizer = { learning_rate = 1e-3; steps = 1000; };
END
make_tokens "$scratch/data.bin" 20000
option=$(test -z "$OFI_ARCHIVES" || echo -s cluster.transport=ofi) # It needs the most libraries.
ok "a plan is built" build packed "$scratch/mlp.cfg" $option
ok "it trains" train_bits packed --data "$scratch/data.bin" --steps 4
bundle() { sh "$top_srcdir/tools/bundle.sh" "$scratch/penstock-packed.tar.gz" "$scratch/packed" "$scratch/mlp.cfg" "$top_srcdir/man/penstock.1"; }
ok "it is packed" bundle
cp "$scratch/penstock-packed.tar.gz" "$scratch/first"
bundle
ok "to the same bytes each time" cmp "$scratch/first" "$scratch/penstock-packed.tar.gz"
is "in one folder" "$(tar tzf "$scratch/penstock-packed.tar.gz" | grep -v /lib/ | tr '\n' ' ')" \
  "penstock-packed/ penstock-packed/mlp.cfg penstock-packed/packed penstock-packed/penstock.1 "

# Libraries of products are loaded on demand, from where they are installed.
is "without libraries that the binary loads on demand" "$(tar tzf "$scratch/penstock-packed.tar.gz" | grep -c -e openblas -e dnnl)" 0
openblas=$(sed -n 's/^#define PEN_OPENBLAS "\(.*\)"/\1/p' "$top_builddir/config.h")
if test -e "$openblas"; then
  matches "OpenBLAS is loaded where it is wanted" "$(PEN_PRODUCTS=library "$scratch/packed" info)" "*matrix products: OpenBLAS for *"
  ok "and trains" env PEN_PRODUCTS=library "$scratch/packed" train --data "$scratch/data.bin" --quiet --steps 2
else
  skip "OpenBLAS is loaded where it is wanted" "it is not installed"
fi

root=$scratch/root
mkdir "$root" "$root/tmp" "$root/proc" "$root/dev" "$root/etc"
echo "127.0.0.1 localhost" >"$root/etc/hosts"
tar xzf "$scratch/penstock-packed.tar.gz" -C "$root"
for file in $(ldd /bin/true "$scratch/packed" | sed -n 's/^[^/]*\(\/[^ ]*\/\(ld-linux[^ ]*\|libc\.so[^ ]*\|libm\.so[^ ]*\|libpthread\.so[^ ]*\|libdl\.so[^ ]*\|librt\.so[^ ]*\|libresolv\.so[^ ]*\)\) .*/\1/p' | sort -u); do
  mkdir -p "$root$(dirname "$file")"
  cp -L "$file" "$root$file"
done
cp "$scratch/data.bin" "$root"
# The loader finds the folder of a program by /proc.
in_root() {
  unshare $(test "$(id -u)" -eq 0 || echo --user --map-root-user) --mount \
    sh -c 'mount --rbind /proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot "$@"' sh "$root" "$@"
}
if in_root /penstock-packed/packed --version >"$scratch/out" 2>&1; then
  ok "its files alone train" in_root /penstock-packed/packed train --data /data.bin --seed 7 --quiet --steps 4 --log /log --checkpoint /ckpt
  matches "there is no OpenBLAS, and info says so" "$(PEN_ISA=baseline in_root /penstock-packed/packed info)" \
    "*baseline; matrix products: own, since OpenBLAS is not installed*"
  is "nor is it asked for with own products" "$(PEN_PRODUCTS=own in_root /penstock-packed/packed info | grep -c 'not installed')" 0
  export PEN_ISA=baseline PEN_PRODUCTS=library
  ok "own products train" in_root /penstock-packed/packed train --data /data.bin --seed 7 --quiet --steps 2
  unset PEN_ISA PEN_PRODUCTS
  is "to the same bits" "$(log_field "$root/log" loss; log_field "$root/log" grad_norm)" "$(cat "$scratch/packed.bits")"
else
  case $(cat "$scratch/out") in
    unshare:* | mount:* | chroot:*"not permitted"*) skip "a root of its own" "$(cat "$scratch/out")" ;;
    *) ok "it starts there: $(cat "$scratch/out")" false ;;
  esac
fi

if command -v systemd-analyze >/dev/null; then
  # It also reads units of this host, of which it may have something to say.
  systemd-analyze verify "$top_srcdir/docs/examples/penstock.service" >"$scratch/out" 2>&1
  is "systemd-analyze finds nothing in the example, also without the binary" "$(grep penstock "$scratch/out")" ""
  sed 's/^Type=/Typ=/' "$top_srcdir/docs/examples/penstock.service" >"$scratch/penstock-wrong.service"
  matches "it would name it" "$(systemd-analyze verify "$scratch/penstock-wrong.service" 2>&1)" "*penstock-wrong.service:*Typ*"
else
  skip "systemd-analyze" "it is not installed"
fi
finish
