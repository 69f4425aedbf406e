# tests/gen: the generator's passes
GEN_TESTS = \
  %reldir%/action_text \
  %reldir%/actions_random \
  %reldir%/canonical \
  %reldir%/collective_cost \
  %reldir%/collective_sums \
  %reldir%/compose \
  %reldir%/critical \
  %reldir%/csv_broken \
  %reldir%/emit \
  %reldir%/extent_map \
  %reldir%/heap \
  %reldir%/interval_tree \
  %reldir%/layout \
  %reldir%/lower \
  %reldir%/lower_bound \
  %reldir%/partition \
  %reldir%/percentile \
  %reldir%/robustness \
  %reldir%/search_published \
  %reldir%/search_timeline \
  %reldir%/search_tiny \
  %reldir%/settings_random \
  %reldir%/shapes \
  %reldir%/simulate \
  %reldir%/step_timing \
  %reldir%/verify \
  %reldir%/verify_audit \
  %reldir%/verify_inputs \
  %reldir%/verify_losses \
  %reldir%/verify_muon \
  %reldir%/verify_outputs \
  %reldir%/verify_readers \
  %reldir%/verify_collectives \
  %reldir%/verify_cache \
  %reldir%/verify_columns \
  %reldir%/verify_deadlocks \
  %reldir%/verify_fused \
  %reldir%/verify_groups \
  %reldir%/verify_generation \
  %reldir%/verify_gradients \
  %reldir%/verify_order \
  %reldir%/verify_tensor_ranks \
  %reldir%/verify_moves \
  %reldir%/verify_splits \
  %reldir%/verify_pointwise \
  %reldir%/verify_random \
  %reldir%/verify_replicas \
  %reldir%/verify_routes \
  %reldir%/verify_rows \
  %reldir%/verify_shapes \
  %reldir%/verify_step \
  %reldir%/verify_sums \
  %reldir%/verify_tables \
  %reldir%/verify_tied \
  %reldir%/verify_tokens \
  %reldir%/views
check_PROGRAMS += %reldir%/search $(GEN_TESTS)
GEN_TEST_LIBS = libtestsupport.a libgen.a $(LIBCONFIG_LIBS) $(JANSSON_LIBS) $(NETTLE_LIBS) $(CMOCKA_LIBS) -lm
%canon_reldir%_action_text_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_actions_random_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_canonical_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_collective_cost_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_collective_sums_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_compose_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_critical_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_csv_broken_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_emit_LDADD = $(GEN_TEST_LIBS) -ldl
%canon_reldir%_extent_map_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_heap_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_interval_tree_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_layout_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_lower_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_lower_bound_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_partition_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_search_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_percentile_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_robustness_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_search_published_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_search_timeline_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_search_tiny_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_settings_random_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_shapes_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_simulate_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_step_timing_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_audit_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_inputs_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_losses_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_muon_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_outputs_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_readers_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_collectives_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_cache_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_columns_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_deadlocks_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_fused_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_groups_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_generation_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_gradients_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_order_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_tensor_ranks_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_moves_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_splits_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_pointwise_SOURCES = %reldir%/verify_pointwise.c %reldir%/ties.def
%canon_reldir%_verify_pointwise_LDADD = $(GEN_TEST_LIBS) $(KERNEL_TEST_LIBS)
%canon_reldir%_verify_random_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_replicas_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_routes_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_rows_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_shapes_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_step_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_sums_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_tables_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_tied_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_verify_tokens_LDADD = $(GEN_TEST_LIBS)
%canon_reldir%_views_LDADD = $(GEN_TEST_LIBS)
