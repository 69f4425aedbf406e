# tests/runtime: the runtime's parts
RUNTIME_TESTS = \
  %reldir%/blend \
  %reldir%/bulk_copy \
  %reldir%/checkpoint \
  %reldir%/checkpoint_bad \
  %reldir%/checkpoint_crash \
  %reldir%/checkpoint_seal \
  %reldir%/control_link \
  %reldir%/control_sync \
  %reldir%/generation_groups \
  %reldir%/generation_step \
  %reldir%/groups \
  %reldir%/handshake \
  %reldir%/slow \
  %reldir%/stall \
  %reldir%/membership \
  %reldir%/indexed_file \
  %reldir%/initial \
  %reldir%/packed \
  %reldir%/route_guard \
  %reldir%/safetensors \
  %reldir%/safetensors_python \
  %reldir%/sample \
  %reldir%/step_inputs \
  %reldir%/step_stats \
  %reldir%/transport \
  %reldir%/window_order
check_PROGRAMS += $(RUNTIME_TESTS)
RUNTIME_TEST_LIBS = libtestsupport.a libruntime.a $(KERNEL_ARCHIVES) $(RUNTIME_LIBS) $(CMOCKA_LIBS) -lpthread
%canon_reldir%_blend_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_bulk_copy_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_checkpoint_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_checkpoint_bad_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_checkpoint_crash_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_checkpoint_seal_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_control_link_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_control_sync_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_generation_groups_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_generation_step_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_groups_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_handshake_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_slow_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_stall_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_membership_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_indexed_file_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_initial_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_packed_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_safetensors_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_safetensors_python_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_route_guard_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_sample_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_step_inputs_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_step_stats_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_transport_LDADD = $(RUNTIME_TEST_LIBS)
%canon_reldir%_window_order_LDADD = $(RUNTIME_TEST_LIBS)
