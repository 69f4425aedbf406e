# tools/bench: make bench, make bench-order, make bench-gen, make bench-layout, make bench-joint
# ---- the benchmark: make bench [PEER=PYTHON] [PEER_DIR=...] [BENCH_OPTIONS='--rounds 5 --steps 12'] [BENCH_PLANS=...] ----
# With BENCH_OPTIONS=--brief everything runs once, with small shapes: whether it works, no figures to keep. bench_1 and bench_1f1b_bf16 are
# among the plans, for the matrix products. These plans are built as deployments; what is linked with one of them is therefore made after
# that, by a make of its own: for each plan a program that measures its dispatch.
BENCH_PLANS = bench_1 bench_1_threads bench_tensor bench_1f1b bench_1f1b_loop bench_zbv bench_r2 bench_r2_opt bench_r2_weights bench_r2_layer bench_1f1b_layer bench_1f1b_bf16 bench_zbv_bf16
EXTRA_PROGRAMS = tools/bench/experts tools/bench/hop tools/bench/matmul tools/bench/matmul_bf16 tools/bench/pointwise tools/bench/read_bytes
EXTRA_DIST += tools/bench/bench.py tools/bench/bench_gen.py tools/bench/child.py tools/bench/decode.py tools/bench/dispatch.c tools/bench/experts_peer.py tools/bench/fixed_order.py tools/bench/fast_math.sh tools/bench/hop_mpi.c tools/bench/hosts.py tools/bench/joint.sh tools/bench/peer.py tools/bench/predict.py tools/bench/recovery.py tools/bench/slow_ranks.py tools/bench/tokens.py tools/bench/tune.py
BENCH_DISPATCH = $(BENCH_PLANS:%=tools/bench/dispatch_%)
tools/bench/dispatch_%: $(srcdir)/tools/bench/dispatch.c plan/%.o libruntime.a
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(COMPILE_PLAIN) $(AM_LDFLAGS) $(LDFLAGS) -o $@ $< plan/$*.o libruntime.a $(RUNTIME_LIBS)
tools_bench_hop_SOURCES = tools/bench/hop.c tools/bench/hop.h
# The kernels for each instruction set call the threads of libkernels.a, which nothing else asks for here.
tools_bench_hop_LDADD = $(OFI_ARCHIVES) libruntime.a $(KERNEL_ARCHIVES) $(OFI_LIBS) $(RUNTIME_LIBS)
if OFI
HOP_LINK = $(OFI_LINK)
endif
tools_bench_hop_LDFLAGS = $(AM_LDFLAGS) $(HOP_LINK)
tools_bench_matmul_SOURCES = tools/bench/matmul.c
tools_bench_matmul_LDADD = plan/bench_1.o $(KERNEL_ARCHIVES) $(BLAS_LIBS) -lm -lpthread
tools_bench_matmul_bf16_SOURCES = tools/bench/matmul.c
tools_bench_matmul_bf16_LDADD = plan/bench_1f1b_bf16.o $(KERNEL_ARCHIVES) $(BLAS_LIBS) -lm -lpthread
tools_bench_pointwise_SOURCES = tools/bench/pointwise.c
tools_bench_pointwise_LDADD = $(KERNEL_ARCHIVES) $(BLAS_LIBS) -lm -lpthread
tools_bench_experts_SOURCES = tools/bench/experts.c
tools_bench_experts_LDADD = $(KERNEL_ARCHIVES) $(BLAS_LIBS) -lm -lpthread
tools_bench_read_bytes_SOURCES = tools/bench/read_bytes.c
CLEANFILES += $(EXTRA_PROGRAMS) $(BENCH_DISPATCH) bench.json

PEER_DIR = $(srcdir)/../shared/peer
BENCH_OPTIONS =
is_brief = $(filter --brief,$(BENCH_OPTIONS))
BENCH_SETTINGS = $(if $(is_brief),batch.microbatch=1 pipeline.microbatches=2 model.sequence=32)
bench: all
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory bench-here
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory bench-hosts
bench-here: all
	@for plan in $(BENCH_PLANS); do \
	  $(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=$$plan NAME= SETTINGS='$(BENCH_SETTINGS)' || exit; \
	done
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory $(EXTRA_PROGRAMS) $(BENCH_DISPATCH)
	@$(PYTHON) -B $(srcdir)/tools/bench/bench.py --topologies '$(srcdir)/topologies' --plans '$(BENCH_PLANS)' $(addprefix -s ,$(BENCH_SETTINGS)) \
	  $(if $(PEER),--peer '$(PEER)' --peer-folder '$(PEER_DIR)') $(BENCH_OPTIONS)
.PHONY: bench bench-here

# ---- over two emulated hosts: make bench-hosts [PEER=PYTHON] [PEER_DIR=...] [HOSTS_OPTIONS='--pairs 20 --turns 5'], also the end of make bench ----
HOSTS_OPTIONS = $(if $(is_brief),--pairs 1 --peer-runs 1 --turns 1 --starts 1 --steps 2)
BENCH_HOSTS = cluster.hosts=[host1,host2] cluster.ranks_per_host=1 cluster.port=29517 cluster.bind=none
bench-hosts: all
	@for plan in bench_1f1b bench_r2; do \
	  $(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=$$plan NAME= SETTINGS='$(BENCH_SETTINGS)' || exit; \
	  $(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=$$plan NAME=$${plan}_hosts SETTINGS='$(BENCH_SETTINGS) $(BENCH_HOSTS)' || exit; \
	done
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory tools/bench/hop$(EXEEXT)
	@for mpi in openmpi mpich; do \
	  if command -v mpicc.$$mpi >/dev/null; then \
	    mpicc.$$mpi -std=gnu17 -O2 -I$(srcdir) -o tools/bench/hop_mpi_$$mpi $(srcdir)/tools/bench/hop_mpi.c \
	      $(HOP_LINK) $(tools_bench_hop_LDADD) || exit; fi; \
	done
	@sh $(srcdir)/tests/support/hosts.sh 2 $(PYTHON) -B $(srcdir)/tools/bench/hosts.py \
	  $(if $(PEER),--peer '$(PEER)' --peer-folder '$(PEER_DIR)') $(HOSTS_OPTIONS); status=$$?; \
	  test $$status -ne 77 || echo 'bench-hosts: skipped: no network namespaces here'; test $$status -eq 77 || exit $$status
CLEANFILES += tools/bench/hop_mpi_openmpi tools/bench/hop_mpi_mpich bench-hosts.json
.PHONY: bench-hosts

# ---- after losses, and with copies in memory: make bench-recovery [RECOVERY_OPTIONS='--kills 10 --pairs 20'] ----
RECOVERY_OPTIONS =
RECOVERY_SPARES = $(BENCH_HOSTS) cluster.port=29527 cluster.spares=[host3,host4,host5,host6,host7,host8,host9,host10]
bench-recovery: all
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=bench_1f1b NAME=
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=bench_1f1b NAME=bench_1f1b_hosts SETTINGS='$(BENCH_HOSTS)'
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=bench_1f1b NAME=bench_1f1b_spares SETTINGS='$(RECOVERY_SPARES)'
	@sh $(srcdir)/tests/support/hosts.sh 10 $(PYTHON) -B $(srcdir)/tools/bench/recovery.py $(RECOVERY_OPTIONS); status=$$?; \
	  test $$status -eq 77 || exit $$status; echo 'two hosts: skipped: no network namespaces here'; \
	  $(PYTHON) -B $(srcdir)/tools/bench/recovery.py --one-host $(RECOVERY_OPTIONS)
CLEANFILES += bench-recovery.json
.PHONY: bench-recovery

# ---- slow ranks and links: make bench-slow [SLOW_CASES='quota-1.2:50 ...'] [SLOW_OPTIONS=--fresh], continues where it was interrupted ----
SLOW_CASES = quota-1.2:50 quota-1.5:50 quiet:100 link-3:50 start-4:50 hosts-quiet:50
SLOW_OPTIONS =
# Steps of 0.6 s: the ratio of two ranks' times varies by 3.5% from one to the next, by 5% where they take 0.15 s.
SLOW_MODEL = batch.microbatch=1 model.sequence=128 pipeline.microbatches=16
# The second rank has less to do, and waits for each message: what a message takes otherwise depends on when the receiver takes it in.
SLOW_LINK_MODEL = batch.microbatch=2 model.sequence=128 pipeline.microbatches=4 model.layers=4 partition.layers=[3,1]
bench-slow: all
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=bench_1f1b NAME=bench_slow SETTINGS='$(SLOW_MODEL)'
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=bench_1f1b NAME=bench_slow_hosts SETTINGS='$(SLOW_LINK_MODEL) $(BENCH_HOSTS) cluster.bind=auto'
	@sh $(srcdir)/tests/support/hosts.sh 2 $(PYTHON) -B $(srcdir)/tools/bench/slow_ranks.py $(SLOW_OPTIONS) $(SLOW_CASES); status=$$?; \
	  test $$status -eq 77 || exit $$status; $(PYTHON) -B $(srcdir)/tools/bench/slow_ranks.py $(SLOW_OPTIONS) $(SLOW_CASES)
CLEANFILES += bench-slow.jsonl
.PHONY: bench-slow

# ---- predicted steps beside measured ones: make bench-predict [PREDICT_OPTIONS='--turns 5 --steps 12'] ----
PREDICT_OPTIONS =
bench-predict: all
	@for file in $(srcdir)/topologies/predict/*.cfg; do \
	  $(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=$$file NAME=predict_$$(basename $$file .cfg) || exit; done
	@$(PYTHON) -B $(srcdir)/tools/bench/predict.py --topologies '$(srcdir)/topologies/predict' $(PREDICT_OPTIONS)
CLEANFILES += bench-predict.json
.PHONY: bench-predict

# ---- a token of one text beside a read of the weights: make bench-decode [DECODE_OPTIONS='--turns 30 --tokens 64'] ----
DECODE_OPTIONS =
DECODE_MODEL = model.vocab=256 batch.microbatch=1 pipeline.microbatches=1
bench-decode: all
	@for dtype in f32 bf16; do \
	  $(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=bench_1 NAME=bench_decode_$$dtype SETTINGS="$(DECODE_MODEL) model.dtype=$$dtype" || exit; \
	done
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory tools/bench/read_bytes$(EXEEXT)
	@$(PYTHON) -B $(srcdir)/tools/bench/decode.py $(DECODE_OPTIONS)
CLEANFILES += bench-decode.json
.PHONY: bench-decode

# ---- a small Mixtral beside transformers: make bench-experts PEER=PYTHON [EXPERTS_OPTIONS='--turns 5 --steps 6'] ----
EXPERTS_OPTIONS =
bench-experts: all
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=bench_experts NAME=
	@$(PYTHON) -B $(srcdir)/tools/bench/experts_peer.py $(if $(PEER),--peer '$(PEER)') $(EXPERTS_OPTIONS)
CLEANFILES += bench-experts.json
.PHONY: bench-experts

# ---- programs of POINTWISE beside kernels: make bench-pointwise [POINTWISE_TURNS=51] ----
POINTWISE_TURNS = 51
bench-pointwise: all
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory tools/bench/pointwise$(EXEEXT)
	@tools/bench/pointwise$(EXEEXT) $(POINTWISE_TURNS)
.PHONY: bench-pointwise

# ---- the cost of the fixed order of sums: make bench-order [ORDER_OPTIONS='--pairs 20'] ----
ORDER_OPTIONS =
ORDER_MODEL = batch.microbatch=2 pipeline.microbatches=4
bench-order: all
	@MAKEFILE=Makefile sh $(srcdir)/tools/bench/fast_math.sh '$(CC)' $(srcdir) bench/fast_math
	@for dtype in f32 bf16; do \
	  $(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=bench_1f1b NAME=bench_order_$$dtype \
	    SETTINGS="$(ORDER_MODEL) model.dtype=$$dtype" && \
	  $(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY=bench_1f1b NAME=bench_order_$${dtype}_free \
	    SETTINGS="$(ORDER_MODEL) model.dtype=$$dtype" KERNEL_ARCHIVES=bench/fast_math/kernels.a || exit; \
	done
	@$(PYTHON) -B $(srcdir)/tools/bench/fixed_order.py $(ORDER_OPTIONS)
CLEANFILES += bench-order.json
.PHONY: bench-order

# ---- the generator's benchmark: make bench-gen [PEER=PYTHON] [PEER_DIR=...] [BENCH_OPTIONS=--large] ----
CLEANFILES += bench-gen.json
bench-gen: penstock-gen$(EXEEXT)
	@$(PYTHON) -B $(srcdir)/tools/bench/bench_gen.py --topologies '$(srcdir)/topologies' --cc '$(PLAN_COMPILE)' \
	  $(if $(PEER),--peer '$(PEER)' --peer-folder '$(PEER_DIR)') $(BENCH_OPTIONS) \
	  $(addprefix $(srcdir)/,$(filter-out topologies/scale.cfg,$(dist_pkgdata_topologies_DATA)))
.PHONY: bench-gen

# ---- placed bytes over live bytes, on a grid of 7480 plans ----
bench-layout: tests/gen/layout$(EXEEXT)
	@tests/gen/layout wide
.PHONY: bench-layout

# ---- the fastest plan for this machine: make tune TOPOLOGY=bench_plan [SETTINGS='plan.sequences=32 ...'] [TUNE_OPTIONS='--turns 3 --steps 8'] ----
TUNE_OPTIONS =
tune: all
	$(if $(TOPOLOGY),,$(error make tune TOPOLOGY=...: say which topology, with a group plan))
	@$(MAKE) $(AM_MAKEFLAGS) --no-print-directory TOPOLOGY= penstock-plan$(EXEEXT)
	@$(PYTHON) -B $(srcdir)/tools/bench/tune.py $(TUNE_OPTIONS) $(addprefix -s ,$(SETTINGS)) '$(MAKE)' '$(TOPOLOGY_FILE)'
.PHONY: tune

# ---- how well partition.balance = "joint" uses the ranks: make bench-joint [JOINT_SECONDS=40] ----
JOINT_SECONDS = 40
bench-joint: penstock-gen$(EXEEXT)
	@sh $(srcdir)/tools/bench/joint.sh ./penstock-gen$(EXEEXT) $(JOINT_SECONDS)
.PHONY: bench-joint
