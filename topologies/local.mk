# topologies: installed as they are
pkgdata_topologiesdir = $(pkgdatadir)/topologies
dist_pkgdata_topologies_DATA = \
  topologies/bench_1.cfg \
  topologies/bench_plan.cfg \
  topologies/bench_1_threads.cfg \
  topologies/bench_tensor.cfg \
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
  topologies/bench_experts.cfg \
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
dist_pkgdata_field_DATA = topologies/field/llama3_405b_512.cfg topologies/field/llama3_405b_512_tp8.cfg topologies/field/llama3_70b_32.cfg \
  topologies/field/llama3_70b_32_tp4.cfg topologies/field/qwen3_8b_8.cfg
pkgdata_predictdir = $(pkgdatadir)/topologies/predict
dist_pkgdata_predict_DATA = \
  topologies/predict/d2_m2.cfg \
  topologies/predict/d2_opt_m4.cfg \
  topologies/predict/n2_m2.cfg \
  topologies/predict/r1_m1.cfg \
  topologies/predict/r1_m8_bf16.cfg \
  topologies/predict/r1_s2_m4.cfg \
  topologies/predict/r2_full_m4.cfg \
  topologies/predict/r2_gpipe_m4.cfg \
  topologies/predict/r2_h1_m4.cfg \
  topologies/predict/r2_m1.cfg \
  topologies/predict/r2_m2.cfg \
  topologies/predict/r2_m4_bf16.cfg \
  topologies/predict/r2_m8.cfg \
  topologies/predict/r2_s2_layer_m2.cfg \
  topologies/predict/r2_s2_loop_m1.cfg \
  topologies/predict/r2_s2_zbv_m2.cfg \
  topologies/predict/r2_s2_zbv_m2_bf16.cfg \
  topologies/predict/r2_s2_zbv_m8.cfg \
  topologies/predict/r2_s4_bfs_m4.cfg \
  topologies/predict/r2_s4_loop_m2.cfg \
  topologies/predict/t2_m2.cfg \
  topologies/predict/t2_whole_m4.cfg
pkgdata_modeldir = $(pkgdatadir)/topologies/model
dist_pkgdata_model_DATA = topologies/model/llama_bench.cfg topologies/model/llama_bench_bf16.cfg topologies/model/llama_predict.cfg topologies/model/llama_predict_bf16.cfg topologies/model/llama_tiny.cfg topologies/model/mlp.cfg
pkgdata_optimizerdir = $(pkgdatadir)/topologies/optimizer
dist_pkgdata_optimizer_DATA = topologies/optimizer/bench.cfg topologies/optimizer/plain.cfg topologies/optimizer/predict.cfg topologies/optimizer/trial.cfg
