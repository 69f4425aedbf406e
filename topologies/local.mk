# topologies: installed as they are
pkgdata_topologiesdir = $(pkgdatadir)/topologies
dist_pkgdata_topologies_DATA = \
  topologies/bench_1.cfg \
  topologies/bench_1_threads.cfg \
  topologies/bench_1f1b.cfg \
  topologies/bench_1f1b_loop.cfg \
  topologies/bench_zbv.cfg \
  topologies/bench_r2.cfg \
  topologies/bench_r2_opt.cfg \
  topologies/bench_r2_weights.cfg \
  topologies/bench_r2_layer.cfg \
  topologies/bench_1f1b_layer.cfg \
  topologies/bench_1f1b_bf16.cfg \
  topologies/bench_zbv_bf16.cfg \
  topologies/demo.cfg \
  topologies/mlp_1.cfg \
  topologies/mlp_4.cfg \
  topologies/mlp_8.cfg \
  topologies/pp4_1f1b_zb.cfg \
  topologies/pp4_gpipe.cfg \
  topologies/pp4_interleaved.cfg \
  topologies/pp8_1f1b.cfg \
  topologies/pp8_zbv.cfg \
  topologies/scale.cfg
pkgdata_fielddir = $(pkgdatadir)/topologies/field
dist_pkgdata_field_DATA = topologies/field/llama3_405b_512.cfg topologies/field/llama3_70b_32.cfg topologies/field/qwen3_8b_8.cfg
pkgdata_modeldir = $(pkgdatadir)/topologies/model
dist_pkgdata_model_DATA = topologies/model/llama_bench.cfg topologies/model/llama_bench_bf16.cfg topologies/model/llama_tiny.cfg topologies/model/mlp.cfg
pkgdata_optimizerdir = $(pkgdatadir)/topologies/optimizer
dist_pkgdata_optimizer_DATA = topologies/optimizer/bench.cfg topologies/optimizer/plain.cfg topologies/optimizer/trial.cfg
