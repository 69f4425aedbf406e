/* attention_cudnn.cc: ATTENTION and ATTENTION_DX in bf16 by cuDNN, through cudnn-frontend.
 *
 * The library is opened at run time. prepare() compiles a kernel for the dims (about half a second;
 * calls with the same dims share it), so before the seal; a call enqueues it and allocates nothing.
 *
 * Bits: an engine and its settings are chosen for a batch and heads of one size and used for all,
 * so they depend on head_dim, sequence and window, and on the library and the kind of GPU. The
 * backward is the deterministic one. Of its two forms we ask for the one whose workspace is linear
 * in the sequence (cuDNN 9.25 and later); an older cuDNN keeps the gradient of all scores, bytes in
 * proportion to sequence x sequence. CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT=-1 asks for that form.
 *
 * Workspace of ATTENTION_DX: space for dq, dk and dv, which may replace q, k and v only after all
 * kernels have run, then cuDNN's own. The plan reserves what the linear form takes (ops.def); a
 * start that needs more allocates one block, which all calls of the process share: they run on one
 * stream. It has not run on a GPU yet.
 */
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <array>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "kernels/cuda/attention_cudnn.h"

namespace cudnn_frontend {
void *cudnn_dlhandle; /* which cudnn-frontend declares and leaves to the program */
}

namespace {

namespace fe = cudnn_frontend;
using tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using device_properties = std::shared_ptr<fe::DeviceProperties>;
using dims = std::array<int64_t, 6>; /* those of ops.def */

/* The GPUs and head_dims for which tests/gpu/cudnn_engines finds engines. */
const struct validated_gpu {
  int capability;
  int64_t head_dim_step, head_dim_max;
} validated[] = {{90, 8, 128}};

enum { OLDEST_CUDNN = 91501, ALIGNMENT = 256 }; /* before: a fault in replayed graphs */
/* The batch and heads for which an engine is chosen. */
enum { CHOICE_BATCH = 4, CHOICE_HEADS = 16 };

cudnnHandle_t handle;
void *more;        /* the block for workspaces that exceed what a plan reserves */
size_t more_bytes; /* its size */
std::mutex calls;  /* a handle serves one thread at a time */

char reason[240];

const char *because(const std::string &text) {
  snprintf(reason, sizeof reason, "%s", text.c_str());
  for (char *c = reason; *c; c++)
    if (*c == '\n') *c = ' ';
  return reason;
}

/* Throws what cuDNN says. */
void demand(fe::error_t error) {
  if (error.is_bad()) throw std::runtime_error(error.get_message());
}

void demand(bool well, const char *what) {
  if (!well) throw std::runtime_error(what);
}

/* Returns null, or what `run` threw. */
template <class RUN>
const char *guarded(const RUN &run) {
  try {
    run();
    return nullptr;
  } catch (const std::exception &thrown) {
    return because(thrown.what());
  }
}

/* ---- graphs ---- */

/* The number of an operand of the op is also its uid in the graph, less 1. */
enum { FORWARD_Q, FORWARD_K, FORWARD_V, FORWARD_STARTS, FORWARD_O, FORWARD_LSE };
enum { DO, Q, K, V, O, LSE, STARTS, DQ, DK, DV };

class attention_graph : public fe::graph::Graph {
 public:
  /* Of the first configuration, which need not be compiled. */
  size_t workspace_bytes() {
    auto configurations = plans.get_barred_engine_configs(); /* those that are not barred */
    demand(!configurations.empty(), "no engine");
    int64_t bytes = 0;
    demand(fe::detail::get_workspace_size(configurations[0], bytes));
    return (size_t)(bytes + get_autotune_workspace_size());
  }
};

tensor shaped(tensor t, int operand, const dims &d, int64_t heads) {
  t->set_uid(operand + 1)
      .set_dim({d[0], heads, d[1], d[4]})
      .set_stride({d[1] * heads * d[4], d[4], heads * d[4], 1});
  return t;
}

tensor shaped_lse(tensor t, int operand, const dims &d) {
  t->set_uid(operand + 1)
      .set_dim({d[0], d[2], d[1], 1})
      .set_stride({d[2] * d[1], d[1], 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
  return t;
}

template <class ATTRIBUTES>
ATTRIBUTES masked(const dims &d) {
  ATTRIBUTES attributes;
  attributes.set_name("attention")
      .set_attn_scale((float)(1 / sqrt((double)d[4])))
      .set_causal_mask(true);
  if (d[5] < d[1]) attributes.set_sliding_window_length((int)d[5]);
  return attributes;
}

void add_forward(attention_graph &graph, const dims &d) {
  const auto input = [&](int operand, int64_t heads) {
    return shaped(graph.tensor(fe::graph::Tensor_attributes()), operand, d, heads);
  };
  auto [o, lse] = graph.sdpa(input(FORWARD_Q, d[2]), input(FORWARD_K, d[3]), input(FORWARD_V, d[3]),
                             masked<fe::graph::SDPA_attributes>(d).set_generate_stats(true));
  shaped(o, FORWARD_O, d, d[2])->set_output(true);
  shaped_lse(lse, FORWARD_LSE, d)->set_output(true);
}

void add_backward(attention_graph &graph, const dims &d) {
  const auto input = [&](int operand, int64_t heads) {
    return shaped(graph.tensor(fe::graph::Tensor_attributes()), operand, d, heads);
  };
  const tensor q = input(Q, d[2]), k = input(K, d[3]), v = input(V, d[3]), o = input(O, d[2]),
               d_o = input(DO, d[2]),
               lse = shaped_lse(graph.tensor(fe::graph::Tensor_attributes()), LSE, d);
  auto [dq, dk, dv] = graph.sdpa_backward(
      q, k, v, o, d_o, lse,
      masked<fe::graph::SDPA_backward_attributes>(d).set_deterministic_algorithm(true));
  shaped(dq, DQ, d, d[2])->set_output(true);
  shaped(dk, DK, d, d[3])->set_output(true);
  shaped(dv, DV, d, d[3])->set_output(true);
}

/* `device`: null for the GPU that is open. */
void describe_graph(attention_graph &graph, enum pen_op_kind kind, const dims &d,
                    const device_properties &device, int capability) {
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(capability);
  if (device) graph.set_device_properties(device);
  kind == PEN_OP_ATTENTION ? add_forward(graph, d) : add_backward(graph, d);
  demand(graph.validate());
  demand(graph.build_operation_graph(device ? nullptr : handle));
}

/* A graph for dims d with one configuration: the first that the heuristics give for CHOICE_BATCH
 * and CHOICE_HEADS. */
void choose(attention_graph &graph, enum pen_op_kind kind, const dims &d,
            const device_properties &device, int capability) {
  attention_graph example;
  describe_graph(example, kind, {CHOICE_BATCH, d[1], CHOICE_HEADS, CHOICE_HEADS, d[4], d[5]},
                 device, capability);
  demand(example.create_execution_plans({fe::HeurMode_t::A}));
  int64_t engine = 0;
  std::unordered_map<fe::KnobType_t, int64_t> settings;
  demand(example.get_engine_and_knobs_at_index(0, engine, settings));
  describe_graph(graph, kind, d, device, capability);
  demand(graph.create_execution_plan(engine, settings));
  demand(graph.check_support());
}

/* ---- workspace ---- */

size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

size_t bytes_of(const dims &d, int64_t heads) {
  return aligned((size_t)(d[0] * d[1] * heads * d[4]) * sizeof(uint16_t));
}

/* For dq, dk and dv. */
size_t gradient_bytes(enum pen_op_kind kind, const dims &d) {
  return kind == PEN_OP_ATTENTION ? 0 : bytes_of(d, d[2]) + 2 * bytes_of(d, d[3]);
}

/* What the plan reserves for cuDNN: in the backward dq in f32, with fewer kv_heads than heads dk
 * and dv of each head, a sum for each query, and counters of blocks of queries. */
size_t reserved_bytes(enum pen_op_kind kind, const dims &d) {
  enum { SMALL = 1024, BLOCK_MIN = 64 };
  if (kind == PEN_OP_ATTENTION) return SMALL;
  const size_t rows = (size_t)(d[0] * d[2]) * (size_t)d[1],
               blocks = (size_t)(d[0] * d[2]) * (size_t)((d[1] + BLOCK_MIN - 1) / BLOCK_MIN);
  return rows * sizeof(float) * (size_t)(d[4] + 1) + (d[3] < d[2] ? 2 * bytes_of(d, d[2]) : 0) +
         8 * blocks + SMALL;
}

dims dims_of(const int64_t dim[PEN_DIMS_MAX]) {
  return {dim[0], dim[1], dim[2], dim[3], dim[4], dim[5]};
}

/* ---- the library ---- */

const char *load(const char **why) {
  static char name[40];
  char runtime[40];
  snprintf(runtime, sizeof runtime, "libcudart.so.%d", CUDART_VERSION / 1000);
  /* cudnn-frontend calls the CUDA runtime by name. */
  setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime, 0);
  setenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", "0", 0);
  fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW);
  if (fe::cudnn_dlhandle == nullptr ||
      dlopen(getenv("CUDNN_FRONTEND_CUDART_LIB_NAME"), RTLD_NOW) == nullptr) {
    *why = because(dlerror());
    return nullptr;
  }
  size_t version = 0;
  *why = guarded([&] {
    version = fe::detail::get_backend_version();
    demand(version >= OLDEST_CUDNN, "libcudnn.so.9 is older than 9.15.1");
  });
  snprintf(name, sizeof name, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
           version % 100);
  return *why == nullptr ? name : nullptr;
}

bool takes(int64_t head_dim) {
  for (const validated_gpu &gpu : validated)
    if (gpu.capability == pen_cuda_chip.capability)
      return head_dim % gpu.head_dim_step == 0 && head_dim <= gpu.head_dim_max;
  return false;
}

const char *open_library(const char **why) {
  if (!takes(0)) {
    *why = "this GPU's compute capability is not one that was checked";
    return nullptr;
  }
  const char *const name = load(why);
  if (name == nullptr) return nullptr;
  *why = guarded([] {
    const cudnnStatus_t status = fe::detail::create_handle(&handle);
    demand(status == CUDNN_STATUS_SUCCESS, fe::detail::get_error_string(status));
  });
  return *why == nullptr ? name : nullptr;
}

struct attention_plan {
  enum pen_op_kind kind;
  dims d;
  std::unique_ptr<attention_graph> graph; /* null: our kernel runs */
  size_t workspace_bytes;                 /* that cuDNN wants */
  std::unordered_map<int64_t, void *> operands;
};

void compile(attention_plan &plan) {
  plan.graph = std::make_unique<attention_graph>();
  choose(*plan.graph, plan.kind, plan.d, nullptr, pen_cuda_chip.capability);
  demand(plan.graph->build_plans());
  int64_t bytes = 0;
  demand(plan.graph->get_workspace_size(bytes));
  plan.workspace_bytes = (size_t)bytes;
}

void print_line(const attention_plan &plan, const char *text) {
  const dims &d = plan.d;
  fprintf(stderr, "%s of %lld x %lld tokens, %lld/%lld heads of %lld, window %lld: %s\n",
          plan.kind == PEN_OP_ATTENTION ? "ATTENTION" : "ATTENTION_DX", (long long)d[0],
          (long long)d[1], (long long)d[2], (long long)d[3], (long long)d[4], (long long)d[5],
          text);
}

/* The block grows only while ops are prepared, before any of their calls. */
void allocate_more(const attention_plan &plan) {
  const size_t reserved = reserved_bytes(plan.kind, plan.d);
  if (plan.workspace_bytes <= reserved || plan.workspace_bytes <= more_bytes) return;
  char text[160];
  snprintf(text, sizeof text,
           "cuDNN wants %zu MiB of workspace, the plan reserves %zu; so many are allocated",
           plan.workspace_bytes >> 20, reserved >> 20);
  print_line(plan, text);
  pen_cuda_note("freeing workspace for cuDNN", cudaFree(more));
  pen_cuda_note("workspace for cuDNN", cudaMalloc(&more, plan.workspace_bytes));
  more_bytes = plan.workspace_bytes;
}

void *prepare(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX]) {
  static std::map<std::pair<enum pen_op_kind, dims>, attention_plan> plans;
  const dims d = dims_of(dim);
  const auto [found, is_new] = plans.try_emplace({kind, d});
  attention_plan &plan = found->second;
  if (!is_new) return &plan;
  plan.kind = kind;
  plan.d = d;
  if (!takes(d[4])) return &plan;
  const char *const why = guarded([&] { return compile(plan); });
  if (why == nullptr) {
    allocate_more(plan);
  } else {
    print_line(plan, (std::string("our kernel runs: cuDNN: ") + why).c_str());
    plan.graph = nullptr;
  }
  return &plan;
}

size_t workspace_bytes(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX]) {
  return gradient_bytes(kind, dims_of(dim)) + reserved_bytes(kind, dims_of(dim));
}

/* ---- calls ---- */

/* Where cuDNN writes an output: in the workspace if it replaces an input. */
void *place_of(const struct pen_call *call, int operand, int replaces, size_t bytes, char **free) {
  if (call->operand[operand] != call->operand[replaces]) return call->operand[operand];
  char *const place = *free;
  *free += bytes;
  return place;
}

void execute(attention_plan &plan, const struct pen_call *call) {
  const bool is_forward = plan.kind == PEN_OP_ATTENTION;
  const int count = is_forward ? (int)FORWARD_LSE + 1 : (int)DV + 1;
  char *free = (char *)call->workspace;
  for (int i = 0; i < count; i++) plan.operands[i + 1] = call->operand[i];
  for (int i = DQ; i < count; i++) /* dq, dk and dv may replace q, k and v */
    plan.operands[i + 1] =
        place_of(call, i, i - DQ + Q, bytes_of(plan.d, plan.d[i == DQ ? 2 : 3]), &free);
  void *const workspace = plan.workspace_bytes <= reserved_bytes(plan.kind, plan.d)
                              ? (char *)call->workspace + gradient_bytes(plan.kind, plan.d)
                              : (char *)more;
  const char *const why = guarded([&] {
    demand(fe::detail::set_stream(handle, (cudaStream_t)call->stream) == CUDNN_STATUS_SUCCESS,
           "setting the stream");
    demand(plan.graph->execute(handle, plan.operands, workspace));
  });
  if (why != nullptr) pen_cuda_note_text("attention by cuDNN", why);
  for (int i = DQ; i < count; i++)
    if (plan.operands[i + 1] != call->operand[i])
      pen_cuda_note("copying a gradient of attention",
                    cudaMemcpyAsync(call->operand[i], plan.operands[i + 1],
                                    bytes_of(plan.d, plan.d[i == DQ ? 2 : 3]),
                                    cudaMemcpyDeviceToDevice, (cudaStream_t)call->stream));
}

void run(const struct pen_call *call) {
  attention_plan &plan = *(attention_plan *)call->prepared;
  const bool is_forward = plan.kind == PEN_OP_ATTENTION,
             has_documents =
                 call->operand[is_forward ? (int)FORWARD_STARTS : (int)STARTS] != nullptr;
  if (plan.graph == nullptr || has_documents) {
    (is_forward ? pen_cuda_attention_bf16 : pen_cuda_attention_dx_bf16)(call);
    return;
  }
  const std::lock_guard<std::mutex> lock(calls);
  execute(plan, call);
}

} /* namespace */

const struct pen_cuda_library pen_cuda_cudnn = {open_library, prepare, workspace_bytes, run};

const char *pen_cudnn_load(const char **why) { return load(why); }

size_t pen_cudnn_reserved_bytes(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX]) {
  return reserved_bytes(kind, dims_of(dim));
}

const char *pen_cudnn_choose(struct pen_cudnn_engine *engine, enum pen_op_kind kind,
                             const int64_t dim[PEN_DIMS_MAX], const char *device) {
  return guarded([&] {
    const auto properties = std::make_shared<fe::DeviceProperties>();
    demand(properties->deserialize(std::vector<uint8_t>(device, device + strlen(device))));
    attention_graph graph;
    choose(graph, kind, dims_of(dim), properties, validated[0].capability);
    std::string name;
    demand(graph.get_plan_name_at_index(0, name));
    snprintf(engine->name, sizeof engine->name, "%s", name.c_str());
    engine->workspace_bytes = graph.workspace_bytes();
  });
}

const char *pen_cudnn_describe(int number, char *json, size_t bytes) {
  return guarded([&] {
    fe::DeviceProperties properties;
    demand(properties.set_device_id(number).build());
    std::vector<uint8_t> text;
    demand(properties.serialize(text));
    demand(text.size() < bytes, "its description is too long");
    snprintf(json, bytes, "%.*s", (int)text.size(), (const char *)text.data());
  });
}
