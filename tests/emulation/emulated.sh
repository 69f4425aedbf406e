# emulated.sh: what the shell tests share that run plans for CUDA over the backend compiled for the host (emulate.h). Sourced after lib.sh.
test -f "$top_builddir/libemulated.a" || skip_all "no CUDA toolkit to compile the backend with"

# link_plan NAME: makes $scratch/NAME from $scratch/NAME.c and NAME.link, with the emulated device, and NCCL, where the plan is for them.
link_plan() {
  link_device=
  read -r plan_device plan_transport <"$scratch/$1.link"
  test "$plan_device" != cuda || link_device='-Wl,-u,pen_cuda libemulated.a -lstdc++ -lubsan'
  test "$plan_transport" != nccl || link_device="-Wl,-u,pen_nccl libemulated_nccl.a $link_device"
  (cd "$top_builddir" &&
    $CC $CFLAGS $PEN_CFLAGS -O0 -I"$top_srcdir" -c -o "$scratch/$1.o" "$scratch/$1.c" &&
    $CC $CFLAGS -o "$scratch/$1" "$scratch/$1.o" libruntime.a $link_device $KERNEL_ARCHIVES $RUNTIME_LIBS)
}
