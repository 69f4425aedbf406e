# tests/faults: random faults, which take too long for make check
EXTRA_DIST += %reldir%/hosts_random.t
