# tests/commands: the programs as a user calls them
COMMAND_TESTS = \
  %reldir%/actions.t \
  %reldir%/bf16.t \
  %reldir%/binding.t \
  %reldir%/bootstrap.t \
  %reldir%/buckets.t \
  %reldir%/build.t \
  %reldir%/checkpoints.t \
  %reldir%/clang.t \
  %reldir%/bundle.t \
  %reldir%/cli.t \
  %reldir%/convert.t \
  %reldir%/convert_hf.t \
  %reldir%/csv.t \
  %reldir%/dashboard.t \
  %reldir%/deb.t \
  %reldir%/dispatch.t \
  %reldir%/evaluate.t \
  %reldir%/families.t \
  %reldir%/faults.t \
  %reldir%/generate.t \
  %reldir%/gradients.t \
  %reldir%/host_faults.t \
  %reldir%/hosts.t \
  %reldir%/launchers.t \
  %reldir%/loss_rows.t \
  %reldir%/manual.t \
  %reldir%/measure.t \
  %reldir%/metrics.t \
  %reldir%/optimizer.t \
  %reldir%/options.t \
  %reldir%/packed_files.t \
  %reldir%/print.t \
  %reldir%/promela.t \
  %reldir%/recompute.t \
  %reldir%/replicas.t \
  %reldir%/restart.t \
  %reldir%/same_bits.t \
  %reldir%/saving.t \
  %reldir%/score.t \
  %reldir%/seal.t \
  %reldir%/slow.t \
  %reldir%/search_command.t \
  %reldir%/secret.t \
  %reldir%/tied.t \
  %reldir%/tokens.t \
  %reldir%/tokens_hf.t \
  %reldir%/topology.t
EXTRA_DIST += $(COMMAND_TESTS) \
  %reldir%/sanitize.t \
  %reldir%/signals.t \
  %reldir%/sharding.t \
  %reldir%/spares.t \
  %reldir%/convert_hf.py \
  %reldir%/csv_torch.py \
  %reldir%/families_torch.py \
  %reldir%/stranger.py
