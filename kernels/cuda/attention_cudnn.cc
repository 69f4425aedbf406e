/* attention_cudnn.cc: ATTENTION, ATTENTION_QKV and their gradients in bf16 by cuDNN, through
 * cudnn-frontend.
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
 * kernels have run, then cuDNN's own; of ATTENTION_QKV_DX only the latter. The plan reserves what
 * the linear form takes (ops.def); a start that needs more allocates one block, which all calls of
 * the process share: they run on one stream. It has not run on a GPU yet.
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

/* The tensors of a graph; their uids, less 1. */
enum { Q, K, V, O, LSE, DO, DQ, DK, DV, TENSORS };

/* Where an op has them. */
const struct op_layout {
  enum pen_op_kind kind;
  const char *name;
  bool is_forward,
      is_packed;        /* packed: q, k and v, and their gradients, are columns of one tensor */
  int operand[TENSORS]; /* of the op; NONE: the graph has no such tensor */
  int starts;
  pen_kernel *own; /* our kernel */
} layouts[] = {
#define NONE (-1)
    {PEN_OP_ATTENTION,
     "ATTENTION",
     true,
     false,
     {0, 1, 2, 4, 5, NONE, NONE, NONE, NONE},
     3,
     pen_cuda_attention_bf16},
    {PEN_OP_ATTENTION_DX,
     "ATTENTION_DX",
     false,
     false,
     {1, 2, 3, 4, 5, 0, 7, 8, 9},
     6,
     pen_cuda_attention_dx_bf16},
    {PEN_OP_ATTENTION_QKV,
     "ATTENTION_QKV",
     true,
     true,
     {0, 0, 0, 2, 3, NONE, NONE, NONE, NONE},
     1,
     pen_cuda_attention_qkv_bf16},
    {PEN_OP_ATTENTION_QKV_DX,
     "ATTENTION_QKV_DX",
     false,
     true,
     {1, 1, 1, 2, 3, 0, 5, 5, 5},
     4,
     pen_cuda_attention_qkv_dx_bf16},
#undef NONE
};

const op_layout *layout_of(enum pen_op_kind kind) {
  for (const op_layout &layout : layouts)
    if (layout.kind == kind) return &layout;
  return nullptr;
}

int64_t heads_of(int of, const dims &d) {
  return of == K || of == V || of == DK || of == DV ? d[3] : d[2];
}

bool is_column(const op_layout &layout, int of) {
  return layout.is_packed && of != O && of != LSE && of != DO;
}

/* Elements from one token to the next, and before the tensor's first. */
int64_t row_of(const op_layout &layout, int of, const dims &d) {
  return (is_column(layout, of) ? d[2] + 2 * d[3] : heads_of(of, d)) * d[4];
}

int64_t first_of(const op_layout &layout, int of, const dims &d) {
  const int64_t heads = of == K || of == DK ? d[2] : of == V || of == DV ? d[2] + d[3] : 0;
  return is_column(layout, of) ? heads * d[4] : 0;
}

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

tensor shaped(tensor t, const op_layout &layout, int of, const dims &d) {
  t->set_uid(of + 1);
  if (of == LSE)
    t->set_dim({d[0], d[2], d[1], 1})
        .set_stride({d[2] * d[1], d[1], 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  else
    t->set_dim({d[0], heads_of(of, d), d[1], d[4]})
        .set_stride({d[1] * row_of(layout, of, d), d[4], row_of(layout, of, d), 1});
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

void add_forward(attention_graph &graph, const op_layout &layout, const dims &d) {
  const auto input = [&](int of) {
    return shaped(graph.tensor(fe::graph::Tensor_attributes()), layout, of, d);
  };
  auto [o, lse] = graph.sdpa(input(Q), input(K), input(V),
                             masked<fe::graph::SDPA_attributes>(d).set_generate_stats(true));
  shaped(o, layout, O, d)->set_output(true);
  shaped(lse, layout, LSE, d)->set_output(true);
}

void add_backward(attention_graph &graph, const op_layout &layout, const dims &d) {
  const auto input = [&](int of) {
    return shaped(graph.tensor(fe::graph::Tensor_attributes()), layout, of, d);
  };
  auto [dq, dk, dv] = graph.sdpa_backward(
      input(Q), input(K), input(V), input(O), input(DO), input(LSE),
      masked<fe::graph::SDPA_backward_attributes>(d).set_deterministic_algorithm(true));
  shaped(dq, layout, DQ, d)->set_output(true);
  shaped(dk, layout, DK, d)->set_output(true);
  shaped(dv, layout, DV, d)->set_output(true);
}

/* `device`: null for the GPU that is open. */
void describe_graph(attention_graph &graph, const op_layout &layout, const dims &d,
                    const device_properties &device, int capability) {
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(capability);
  if (device) graph.set_device_properties(device);
  (layout.is_forward ? add_forward : add_backward)(graph, layout, d);
  demand(graph.validate());
  demand(graph.build_operation_graph(device ? nullptr : handle));
}

/* A graph for dims d with one configuration: the first that the heuristics give for CHOICE_BATCH
 * and CHOICE_HEADS, and for q, k and v in tensors of their own. */
void choose(attention_graph &graph, const op_layout &layout, const dims &d,
            const device_properties &device, int capability) {
  attention_graph example;
  describe_graph(example, *layout_of(layout.is_forward ? PEN_OP_ATTENTION : PEN_OP_ATTENTION_DX),
                 {CHOICE_BATCH, d[1], CHOICE_HEADS, CHOICE_HEADS, d[4], d[5]}, device, capability);
  demand(example.create_execution_plans({fe::HeurMode_t::A}));
  int64_t engine = 0;
  std::unordered_map<fe::KnobType_t, int64_t> settings;
  demand(example.get_engine_and_knobs_at_index(0, engine, settings));
  describe_graph(graph, layout, d, device, capability);
  demand(graph.create_execution_plan(engine, settings));
  demand(graph.check_support());
}

/* ---- workspace ---- */

size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

size_t bytes_of(const dims &d, int64_t heads) {
  return (size_t)(d[0] * d[1] * heads * d[4]) * sizeof(uint16_t);
}

/* For dq, dk and dv, where they may replace q, k and v. */
size_t gradient_bytes(const op_layout &layout, const dims &d) {
  const bool may_replace = !layout.is_forward && !layout.is_packed;
  return may_replace ? aligned(bytes_of(d, d[2])) + 2 * aligned(bytes_of(d, d[3])) : 0;
}

/* What the plan reserves for cuDNN: in the backward dq in f32, with fewer kv_heads than heads dk
 * and dv of each head, a sum for each query, and counters of blocks of queries. */
size_t reserved_bytes(const op_layout &layout, const dims &d) {
  enum { SMALL = 1024, BLOCK_MIN = 64 };
  if (layout.is_forward) return SMALL;
  const size_t rows = (size_t)(d[0] * d[2]) * (size_t)d[1],
               blocks = (size_t)(d[0] * d[2]) * (size_t)((d[1] + BLOCK_MIN - 1) / BLOCK_MIN);
  return rows * sizeof(float) * (size_t)(d[4] + 1) +
         (d[3] < d[2] ? 2 * aligned(bytes_of(d, d[2])) : 0) + 8 * blocks + SMALL;
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
  const op_layout *layout;
  dims d;
  std::unique_ptr<attention_graph> graph; /* null: our kernel runs */
  size_t workspace_bytes;                 /* that cuDNN wants */
  std::unordered_map<int64_t, void *> operands;
};

void compile(attention_plan &plan) {
  plan.graph = std::make_unique<attention_graph>();
  choose(*plan.graph, *plan.layout, plan.d, nullptr, pen_cuda_chip.capability);
  demand(plan.graph->build_plans());
  int64_t bytes = 0;
  demand(plan.graph->get_workspace_size(bytes));
  plan.workspace_bytes = (size_t)bytes;
}

void print_line(const attention_plan &plan, const char *text) {
  const dims &d = plan.d;
  fprintf(stderr, "%s of %lld x %lld tokens, %lld/%lld heads of %lld, window %lld: %s\n",
          plan.layout->name, (long long)d[0], (long long)d[1], (long long)d[2], (long long)d[3],
          (long long)d[4], (long long)d[5], text);
}

/* The block grows only while ops are prepared, before any of their calls. */
void allocate_more(const attention_plan &plan) {
  const size_t reserved = reserved_bytes(*plan.layout, plan.d);
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
  plan.layout = layout_of(kind);
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
  return gradient_bytes(*layout_of(kind), dims_of(dim)) +
         reserved_bytes(*layout_of(kind), dims_of(dim));
}

/* ---- calls ---- */

/* Where cuDNN finds a tensor; a gradient that replaces its value is in the workspace until all
 * kernels have run. */
void *place_of(const attention_plan &plan, const struct pen_call *call, int of, char **free) {
  const int operand = plan.layout->operand[of];
  const bool replaces = of >= DQ && !plan.layout->is_packed &&
                        call->operand[operand] == call->operand[plan.layout->operand[of - DQ + Q]];
  if (!replaces) return (uint16_t *)call->operand[operand] + first_of(*plan.layout, of, plan.d);
  char *const place = *free;
  *free += aligned(bytes_of(plan.d, heads_of(of, plan.d)));
  return place;
}

void execute(attention_plan &plan, const struct pen_call *call) {
  const int count = plan.layout->is_forward ? (int)LSE + 1 : (int)TENSORS;
  char *free = (char *)call->workspace;
  for (int of = 0; of < count; of++) plan.operands[of + 1] = place_of(plan, call, of, &free);
  void *const workspace = plan.workspace_bytes <= reserved_bytes(*plan.layout, plan.d)
                              ? (char *)call->workspace + gradient_bytes(*plan.layout, plan.d)
                              : (char *)more;
  const char *const why = guarded([&] {
    demand(fe::detail::set_stream(handle, (cudaStream_t)call->stream) == CUDNN_STATUS_SUCCESS,
           "setting the stream");
    demand(plan.graph->execute(handle, plan.operands, workspace));
  });
  if (why != nullptr) pen_cuda_note_text("attention by cuDNN", why);
  for (int of = DQ; of < count && !plan.layout->is_packed; of++)
    if (plan.operands[of + 1] != call->operand[plan.layout->operand[of]])
      pen_cuda_note("copying a gradient of attention",
                    cudaMemcpyAsync(call->operand[plan.layout->operand[of]], plan.operands[of + 1],
                                    bytes_of(plan.d, heads_of(of, plan.d)),
                                    cudaMemcpyDeviceToDevice, (cudaStream_t)call->stream));
}

void run(const struct pen_call *call) {
  attention_plan &plan = *(attention_plan *)call->prepared;
  const bool has_documents = call->operand[plan.layout->starts] != nullptr,
             has_cap = call->real[0] != 0;
  if (plan.graph == nullptr || has_documents || has_cap) {
    plan.layout->own(call);
    return;
  }
  const std::lock_guard<std::mutex> lock(calls);
  execute(plan, call);
}

bool takes_op(enum pen_op_kind kind) { return layout_of(kind) != nullptr; }

} /* namespace */

const struct pen_cuda_library pen_cuda_cudnn = {open_library, takes_op, prepare, workspace_bytes,
                                                run};

const char *pen_cudnn_load(const char **why) { return load(why); }

size_t pen_cudnn_reserved_bytes(enum pen_op_kind kind, const int64_t dim[PEN_DIMS_MAX]) {
  return reserved_bytes(*layout_of(kind), dims_of(dim));
}

const char *pen_cudnn_choose(struct pen_cudnn_engine *engine, enum pen_op_kind kind,
                             const int64_t dim[PEN_DIMS_MAX], const char *device) {
  return guarded([&] {
    const auto properties = std::make_shared<fe::DeviceProperties>();
    demand(properties->deserialize(std::vector<uint8_t>(device, device + strlen(device))));
    attention_graph graph;
    choose(graph, *layout_of(kind), dims_of(dim), properties, validated[0].capability);
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
