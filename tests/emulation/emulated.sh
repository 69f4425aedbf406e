# emulated.sh: what the shell tests share that run plans for CUDA over the backend compiled for the host (emulate.h). Sourced after lib.sh.
test -f "$top_builddir/libemulated.a" || skip_all "no CUDA toolkit to compile the backend with"

# link_plan NAME: makes $scratch/NAME from $scratch/NAME.c and NAME.link, with the emulated device, and NCCL, where the plan is for them, and
# what $link_more has.
link_plan() {
  link_device=
  read -r plan_device plan_transport <"$scratch/$1.link"
  test "$plan_device" != cuda || link_device='-Wl,-u,pen_cuda libemulated.a -lstdc++ -lubsan'
  test "$plan_transport" != nccl || link_device="-Wl,-u,pen_nccl libemulated_nccl.a $link_device"
  (cd "$top_builddir" &&
    $CC $CFLAGS $PEN_CFLAGS -O0 -I"$top_srcdir" -c -o "$scratch/$1.o" "$scratch/$1.c" &&
    $CC $CFLAGS $strip_debug -o "$scratch/$1" "$scratch/$1.o" ${link_more-} libruntime.a $link_device $KERNEL_ARCHIVES $RUNTIME_LIBS ${CBLAS_LIBS-})
}

# The modes of a graph (the manual page, PEN_GRAPH) in which cases run by turns, so that each runs once, or the caller's, in which all do: the bits
# must be those of one rank in either. What a step runs as is printed without --quiet.
modes=${PEN_GRAPH:-marked serial}
unset PEN_GRAPH
quiet=

# in_mode COMMAND...: runs it with the next mode, which is in $mode afterwards. Rank 0 writes its graph to $scratch/graph.dot.
in_mode() {
  mode=${modes%% *} modes="${modes#* }"
  test "$modes" = "$mode" || modes="$modes $mode"
  rm -f "$scratch/graph.dot"
  PEN_GRAPH=$mode PEN_GRAPH_DOT=$scratch/graph.dot "$@"
}

# shape_of DOT: how many nodes a graph has, and whether each depends on the one that was captured before it, and on no other.
shape_of() {
  awk '/label=/ { nodes++ } $2 == "->" { edges++; apart += substr($3, 2) != substr($1, 2) + 1 }
    END { print nodes + 0 " nodes, " (edges == nodes - 1 && !apart ? "a chain" : "branches") }' "$1"
}

# as_one_graph NAME FILE: a test that all ranks of the run of the last in_mode, with that standard error, had graphs. A serial one is a chain.
as_one_graph() {
  shape=$(shape_of "$scratch/graph.dot")
  case $mode in serial) wanted=${shape%,*}", a chain" ;; *) wanted=$shape ;; esac
  is "$1: as one graph" "$(sed -n 's/.*\(cannot be one graph\).*/\1/p
    s/.*: rank 0: a step of train is one graph (\([a-z]*\)): \([1-9][0-9]* nodes\), [0-9.]* ms to capture, [0-9.]* MiB$/\1: \2/p' "$2"), ${shape#*, }" \
    "$mode: $wanted"
}

# await_stall: until a call of the device that $scratch/wrong names has stalled (emulate_streams.cc), or a minute has passed.
await_stall() {
  await_tries=0
  while test -e "$scratch/wrong" && test $await_tries -lt 2400; do sleep 0.05; await_tries=$((await_tries + 1)); done
}

# await_ticks PROCESS COUNT: until it has used the processor for so many more ticks, or a minute has passed.
await_ticks() {
  await_tries=0 await_until=$(($(ticks_of "$1") + $2))
  while test "$(ticks_of "$1")" -lt $await_until && test $await_tries -lt 2400; do sleep 0.05; await_tries=$((await_tries + 1)); done
}
ticks_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '{ ticks = $12 + $13 } END { print ticks + 0 }'; }
