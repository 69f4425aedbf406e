/* onednn.c: products by oneDNN's matmul primitive (see onednn.h).
 *
 * Each shape is prepared once: descriptors with the strides of row-major tensors, and two
 * primitives, one that writes the result and one that adds to it. The result has the dtype of the
 * op; a weight gradient is f32. Sums are f32.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"

#if PEN_HAS_ONEDNN
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(DNNL_VERSION_MAJOR == 2, "the interface that is used below");

/* The functions used, looked up when the library is loaded. */
#define FUNCTIONS(row)                                                                             \
  row(dnnl_version) row(dnnl_engine_create) row(dnnl_stream_create) row(dnnl_stream_wait)          \
      row(dnnl_memory_desc_init_by_strides) row(dnnl_memory_desc_get_size) row(dnnl_memory_create) \
          row(dnnl_memory_set_data_handle) row(dnnl_matmul_desc_init)                              \
              row(dnnl_primitive_attr_create) row(dnnl_primitive_attr_destroy)                     \
                  row(dnnl_primitive_attr_set_scratchpad_mode) row(dnnl_post_ops_create)           \
                      row(dnnl_post_ops_append_sum) row(dnnl_post_ops_destroy)                     \
                          row(dnnl_primitive_attr_set_post_ops) row(dnnl_primitive_desc_create)    \
                              row(dnnl_primitive_desc_query_md) row(dnnl_primitive_desc_destroy)   \
                                  row(dnnl_primitive_create) row(dnnl_primitive_execute)

static struct {
#define DECLARE(name) __typeof__(&name) name;
  FUNCTIONS(DECLARE)
#undef DECLARE
} library;

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static struct {
  void *memory;
  size_t bytes;
} scratchpad;

static int look_up(void *handle) {
#define LOOK_UP(name) \
  if ((library.name = (__typeof__(&name))dlsym(handle, #name)) == NULL) return 0;
  FUNCTIONS(LOOK_UP)
#undef LOOK_UP
  return 1;
}

int pen_onednn_suits_cpu(void) {
#if defined __x86_64__
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return 0;
#endif
}

const char *pen_onednn_open(void) {
  static char name[40];
  if (*name) return name;
  void *handle = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL || !look_up(handle)) return NULL;
  /* One thread (see matmul.c). Debian's library uses OpenMP. */
  void (*set_threads)(int) = (void (*)(int))dlsym(handle, "omp_set_num_threads");
  if (set_threads) set_threads(1);
  if (library.dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success ||
      library.dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success)
    return NULL;
  const dnnl_version_t *version = library.dnnl_version();
  snprintf(name, sizeof name, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
  return name;
}

/* Ends the program: no memory, or a prepared call failed and its result would be wrong. */
static void check_status(dnnl_status_t status, const char *what) {
  if (status == dnnl_success) return;
  fprintf(stderr, "penstock: oneDNN: %s: %s\n", what,
          status == dnnl_out_of_memory ? "no memory" : "it failed");
  abort();
}

/* ---- shapes ---- */

enum { PLAIN, ADDED, VARIANTS };

struct onednn_product {
  struct onednn_product *next;
  const struct pen_product_geometry *geometry;
  enum pen_dtype dtype;
  int64_t dim[PEN_PRODUCT_DIMS];
  size_t result_bytes;
  dnnl_memory_desc_t left_desc, right_desc, bias_desc, result_desc;
  dnnl_memory_t left, right, bias, result, scratch[VARIANTS];
  dnnl_primitive_t primitive[VARIANTS];
  pen_kernel *fallback; /* null: the library runs it */
};

static struct onednn_product *products;

static const struct pen_product_geometry *geometry_of(enum pen_op_kind kind) {
  for (int i = 0; i < PEN_PRODUCTS; i++)
    if (pen_product_geometries[i].kind == kind) return &pen_product_geometries[i];
  return NULL;
}

/* Describes a matrix: element (i, j) is at i * row + j or, transposed, at j * row + i. */
static int describe_matrix(dnnl_memory_desc_t *desc, dnnl_data_type_t type, int64_t rows,
                           int64_t columns, int64_t row, int transposed) {
  const dnnl_dims_t dims = {rows, columns}, strides = {transposed ? 1 : row, transposed ? row : 1};
  return library.dnnl_memory_desc_init_by_strides(desc, 2, dims, type, strides) == dnnl_success;
}

static int make_memory(dnnl_memory_t *memory, const dnnl_memory_desc_t *desc) {
  return library.dnnl_memory_create(memory, desc, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static int describe_tensors(struct onednn_product *p) {
  const struct pen_product_geometry *g = p->geometry;
  const int64_t m = p->dim[g->m], n = p->dim[g->n], k = p->dim[g->k];
  const dnnl_data_type_t type = p->dtype == PEN_BF16 ? dnnl_bf16 : dnnl_f32;
  p->result_bytes = (size_t)m * (size_t)n * (p->dtype == PEN_BF16 && !g->adds ? 2 : 4);
  return describe_matrix(&p->left_desc, type, m, k, p->dim[g->left_row], g->left_transposed) &&
         describe_matrix(&p->right_desc, type, k, n, p->dim[g->right_row], g->right_transposed) &&
         describe_matrix(&p->bias_desc, dnnl_f32, 1, n, n, 0) &&
         describe_matrix(&p->result_desc, g->adds ? dnnl_f32 : type, m, n, n, 0) &&
         make_memory(&p->left, &p->left_desc) && make_memory(&p->right, &p->right_desc) &&
         make_memory(&p->bias, &p->bias_desc) && make_memory(&p->result, &p->result_desc);
}

/* One scratchpad for all: products run one after another. */
static void grow_scratchpad(size_t bytes) {
  if (bytes <= scratchpad.bytes) return;
  free(scratchpad.memory);
  scratchpad.bytes = bytes;
  check_status(
      posix_memalign(&scratchpad.memory, 4096, bytes) == 0 ? dnnl_success : dnnl_out_of_memory,
      "allocating the scratchpad");
}

static int make_primitive(struct onednn_product *p, int variant,
                          const_dnnl_primitive_attr_t attributes) {
  dnnl_matmul_desc_t desc;
  dnnl_primitive_desc_t chosen;
  if (library.dnnl_matmul_desc_init(&desc, &p->left_desc, &p->right_desc,
                                    p->geometry->bias == PEN_NO_BIAS ? NULL : &p->bias_desc,
                                    &p->result_desc) != dnnl_success ||
      library.dnnl_primitive_desc_create(&chosen, &desc, attributes, engine, NULL) != dnnl_success)
    return 0;
  const dnnl_memory_desc_t *wanted =
      library.dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0);
  grow_scratchpad(library.dnnl_memory_desc_get_size(wanted));
  const int good = make_memory(&p->scratch[variant], wanted) &&
                   library.dnnl_primitive_create(&p->primitive[variant], chosen) == dnnl_success;
  library.dnnl_primitive_desc_destroy(chosen);
  return good;
}

static int make_variant(struct onednn_product *p, int variant) {
  dnnl_primitive_attr_t attributes;
  dnnl_post_ops_t sum;
  if (library.dnnl_primitive_attr_create(&attributes) != dnnl_success) return 0;
  int good = library.dnnl_primitive_attr_set_scratchpad_mode(
                 attributes, dnnl_scratchpad_mode_user) == dnnl_success;
  if (good && variant == ADDED) {
    good = library.dnnl_post_ops_create(&sum) == dnnl_success;
    if (good) {
      good = library.dnnl_post_ops_append_sum(sum, 1.0f) == dnnl_success &&
             library.dnnl_primitive_attr_set_post_ops(attributes, sum) == dnnl_success;
      library.dnnl_post_ops_destroy(sum);
    }
  }
  good = good && make_primitive(p, variant, attributes);
  library.dnnl_primitive_attr_destroy(attributes);
  return good;
}

void *pen_onednn_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                         const int64_t dim[PEN_DIMS_MAX], pen_kernel *fallback, int falls_back) {
  for (struct onednn_product *p = products; p != NULL; p = p->next)
    if (p->geometry->kind == kind && p->dtype == dtype && memcmp(p->dim, dim, sizeof p->dim) == 0)
      return p;
  struct onednn_product *p = calloc(1, sizeof *p);
  check_status(p != NULL ? dnnl_success : dnnl_out_of_memory, "allocating a product");
  *p = (struct onednn_product){.geometry = geometry_of(kind),
                               .dtype = dtype,
                               .dim = {dim[PEN_ROWS], dim[PEN_IN], dim[PEN_OUT], dim[PEN_SPLITS]}};
  if (falls_back || p->dim[PEN_SPLITS] > 0 || !describe_tensors(p) ||
      !(p->geometry->adds || make_variant(p, PLAIN)) || !make_variant(p, ADDED)) {
    if (fallback == NULL) return NULL; /* what was created is kept */
    p->fallback = fallback;
  }
  p->next = products;
  return products = p;
}

/* ---- calls ---- */

static void set_address(dnnl_memory_t memory, void *at) {
  check_status(library.dnnl_memory_set_data_handle(memory, at), "setting an address");
}

void pen_onednn_product(const struct pen_call *call) {
  const struct onednn_product *p = call->prepared;
  const struct pen_product_geometry *g = p->geometry;
  if (p->fallback) {
    p->fallback(call);
    return;
  }
  void *result = call->operand[g->result], *addend = call->operand[g->addend];
  const int variant = addend ? ADDED : PLAIN;
  if (addend && addend != result) memcpy(result, addend, p->result_bytes);
  set_address(p->left, call->operand[g->left]);
  set_address(p->right, call->operand[g->right]);
  set_address(p->result, result);
  set_address(p->scratch[variant], scratchpad.memory);
  dnnl_exec_arg_t argument[5] = {{DNNL_ARG_SRC, p->left},
                                 {DNNL_ARG_WEIGHTS, p->right},
                                 {DNNL_ARG_DST, p->result},
                                 {DNNL_ARG_SCRATCHPAD, p->scratch[variant]}};
  int count = 4;
  if (g->bias != PEN_NO_BIAS) {
    set_address(p->bias, call->operand[g->bias]);
    argument[count++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, p->bias};
  }
  check_status(library.dnnl_primitive_execute(p->primitive[variant], stream, count, argument),
               "a product");
  check_status(library.dnnl_stream_wait(stream), "a product's end");
}

#else
#include <stdlib.h>

int pen_onednn_suits_cpu(void) { return 0; }

const char *pen_onednn_open(void) { return NULL; }

void *pen_onednn_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                         const int64_t dim[PEN_DIMS_MAX], pen_kernel *fallback, int falls_back) {
  (void)kind, (void)dtype, (void)dim, (void)fallback, (void)falls_back;
  return NULL;
}

void pen_onednn_product(const struct pen_call *call) {
  (void)call;
  abort(); /* nothing was prepared for it */
}

#endif
