#!/bin/sh
# hardened.t: every program that is built, and every deployment, is hardened.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/hardened.sh"
reason=$(no_hardening)
test -z "$reason" || skip_all "$reason"
for program in gen plan tokens convert; do ok "penstock-$program is hardened" is_hardened "$top_builddir/penstock-$program"; done

cat >"$scratch/mlp.cfg" <<'END'
model = { family = "mlp"; layers = 2; hidden = 16; sequence = 4; };
batch = { microbatch = 1; };
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
optimizer = { learning_rate = 1e-3; steps = 2; };
END
ok "a deployment is built" build one "$scratch/mlp.cfg"
ok "it is hardened" is_hardened "$scratch/one"
if test -n "$OFI_ARCHIVES"; then
  ok "with messages by libfabric it is built" build ofi "$scratch/mlp.cfg" -s cluster.transport=ofi
  ok "it is hardened, too" is_hardened "$scratch/ofi"
else
  skip "messages by libfabric" "no libfabric here"
fi

# What is not hardened is found.
echo 'int main(void) { return 0; }' >"$scratch/plain.c"
$CC -o "$scratch/plain" "$scratch/plain.c" -Wl,-z,norelro -Wl,-z,lazy -fno-stack-protector 2>/dev/null
is "a program without is told apart" "$(is_hardened "$scratch/plain" | sed 's/.*: //')" "relro bind-now stack-protector fortify"
finish
