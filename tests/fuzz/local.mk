# tests/fuzz: inputs that the fuzzer kept, and their replay
FUZZ_TESTS = %reldir%/replay
EXTRA_DIST += \
  %reldir%/corpus/actions.tar \
  %reldir%/corpus/costs.tar \
  %reldir%/corpus/csv.tar \
  %reldir%/corpus/topology.tar \
  %reldir%/port.t \
  %reldir%/replay \
  %reldir%/run \
  %reldir%/small.cfg
