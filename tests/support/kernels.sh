# kernels.sh: how the Makefile compiles the CPU's kernels, for what compiles them in another way.

# kernel_sources MAKEFILE: in $top_srcdir: a line for each compilation of kernels/cpu/vector: LIBRARY FILE FLAG...
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

# compile_kernels MAKEFILE SOURCES COMPILER FLAGS FOLDER FILE...: compiles the kernels in the folder SOURCES, and the files, into FOLDER; those of
# vectors for the instruction sets of $kernel_sets alone, where it is not empty.
compile_kernels() {
  kernel_makefile=$1 kernel_folder=$2 kernel_compiler=$3 kernel_flags=$4 kernel_objects=$5
  shift 5
  (cd "$kernel_folder" && {
    kernel_sources "$kernel_makefile" | grep -E "^(${kernel_sets:-.*})(-bf16)? "
    for file in kernels/*.c kernels/cpu/*.c "$@"; do echo "main $file"; done
  } | awk -v to="$kernel_objects" -v flags="$kernel_flags $(sed -n 's/^PEN_CFLAGS = //p; s/^CBLAS_CFLAGS = //p' "$kernel_makefile" | tr '\n' ' ') -w -I. -I$(dirname "$kernel_makefile")" '{
      name = $2; gsub(/\//, "-", name); sub(/\.c$/, ".o", name)
      line = flags " -c -o " to "/" $1 "-" name " " $2
      for (i = 3; i <= NF; i++) line = line " " $i
      print line
    }' | xargs -P 2 -L 1 $kernel_compiler)
}
