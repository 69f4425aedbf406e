# routers.sh: what tests of mixtures of experts share: the tensors of a safetensors file, and routers with bytes of their own.

# header FILE: the JSON of a safetensors file.
header() { tail -c +9 "$1" | head -c "$(od -An -tu8 -N 8 "$1" | tr -d ' ')"; }

# put_router LAYER BYTES FILE: the router of that layer, of 8 experts of 32 columns in f32, is these four bytes, escaped, again and again.
put_router() {
  router_at=$(header "$3" | sed "s/.*\"model.layers.$1.mlp.gate.weight\":{[^}]*offsets\":\[\([0-9]*\),.*/\1/")
  router_at=$((router_at + 8 + $(od -An -tu8 -N 8 "$3" | tr -d ' ')))
  awk 'BEGIN { for (n = 0; n < 256; n++) printf "%s", ARGV[1] }' "$2" >"$scratch/escaped"
  printf "$(cat "$scratch/escaped")" | dd of="$3" bs=1 seek="$router_at" conv=notrunc 2>/dev/null
}

# build_damaged NAME TOPOLOGY [GEN OPTION...]: a binary that damages its routes as DAMAGE says (damage_routes.c).
build_damaged() {
  (cd "$top_builddir" && $CC $CFLAGS $PEN_CFLAGS -I"$top_srcdir" -c -o "$scratch/damage_routes.o" "$top_srcdir/tests/support/damage_routes.c") || return 1
  link_more="$scratch/damage_routes.o -Wl,--wrap=pen_guard_routes"
  build "$@"
  built=$? link_more=
  return $built
}
