# tests/fuzz: inputs that the fuzzer kept, and their replay
FUZZ_TESTS = %reldir%/replay
EXTRA_DIST += \
  %reldir%/corpus/actions.tar \
  %reldir%/corpus/costs.tar \
  %reldir%/corpus/csv.tar \
  %reldir%/corpus/description.tar \
  %reldir%/corpus/topology.tar \
  %reldir%/described.cfg \
  %reldir%/limits.py \
  %reldir%/limits.sh \
  %reldir%/port.t \
  %reldir%/replay \
  %reldir%/run \
  %reldir%/small.cfg

# Settings at their limits, under AddressSanitizer and UndefinedBehaviorSanitizer.
check-limits:
	CC='$(CC)' $(SHELL) $(top_srcdir)/tests/fuzz/limits.sh
.PHONY: check-limits
