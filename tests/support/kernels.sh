# kernels.sh: how the Makefile compiles the CPU's kernels, for tests that compile them in another way. Runs in $top_srcdir.

# kernel_sources MAKEFILE: a line for each compilation of kernels/cpu/vector: LIBRARY FILE FLAG...
kernel_sources() {
  for isa in $(sed -n 's/^libkernels_[a-z0-9]*_a_CFLAGS = .*-DPEN_ISA=\([a-z0-9]*\).*/\1/p' "$1"); do
    isa_flags=$(sed -n "s/^libkernels_${isa}_a_CFLAGS = .*\\(-DPEN_ISA=.*\\)/\\1/p" "$1")
    for file in kernels/cpu/vector/*.c; do
      case $file in */product_pairs.c) bf16_only=yes f32_only=no ;;
        */to_bf16.c | */normal.c | */optimizer.c | */product.c) bf16_only=no f32_only=yes ;;
        *) bf16_only=no f32_only=no ;;
      esac
      case $isa_flags in *PEN_PAIRS*) pairs=yes ;; *) pairs=no ;; esac
      if test $pairs = no -a $bf16_only = no; then echo "$isa $file $isa_flags"; fi
      if test $f32_only = no -a \( $bf16_only = no -o $pairs = yes \); then echo "$isa-bf16 $file $isa_flags -DPEN_STORED_BF16"; fi
    done
  done
}
