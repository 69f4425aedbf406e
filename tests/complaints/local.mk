# tests/complaints: what users of other systems complain of, by system and number (docs/complaints.md has the table)
COMPLAINT_TESTS = \
  %reldir%/experts.t \
  %reldir%/hangs.t \
  %reldir%/memory.t \
  %reldir%/numbers.t \
  %reldir%/plans \
  %reldir%/resume.t
check_PROGRAMS += %reldir%/plans
%canon_reldir%_plans_LDADD = $(GEN_TEST_LIBS)
EXTRA_DIST += $(filter %.t,$(COMPLAINT_TESTS)) %reldir%/support.sh
