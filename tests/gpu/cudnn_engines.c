/* cudnn_engines.c: cuDNN has an engine for attention at each shape of the bench and of other models
 * on a described H100, whatever the batch and heads, and the plan reserves the workspace that it
 * wants. Needs no GPU, and nothing runs on it.
 *
 *   cudnn_engines [FILE]   FILE: another description (tests/gpu/describe) than h100.json
 *
 * cuDNN loads only with a libcuda.so.1: the driver's, or else the toolkit's stub, with which
 * kernels cannot be loaded. So engines are chosen and their workspace is asked for, and the
 * compilation that prepare() does next is not tried. Before cuDNN 9.25 the backward wants more
 * workspace than the plan reserves, which a start then allocates. */
#include "tests/support/kernels_signature.h"

#ifdef PEN_HAS_CUDNN
#include <dlfcn.h>

#include "kernels/cuda/attention_cudnn.h"

static char description[4096];
static int is_linear; /* the deterministic backward has a workspace linear in the sequence */

static const int64_t shapes[][PEN_DIMS_MAX] = {
    {4, 2048, 32, 8, 64, 2048},   /* llama_1b */
    {16, 1024, 12, 12, 64, 1024}, /* gpt2_124m */
    {8, 2048, 12, 12, 64, 2048},   {4, 4096, 12, 12, 64, 4096},   {2, 8192, 12, 12, 64, 8192},
    {1, 16384, 12, 12, 64, 16384}, {8, 2048, 16, 4, 128, 2048},   {4, 4096, 16, 4, 128, 4096},
    {2, 8192, 16, 4, 128, 8192},   {1, 16384, 16, 4, 128, 16384}, {8, 2048, 16, 4, 128, 512},
    {2, 8192, 16, 4, 128, 1024},   {1, 4096, 8, 8, 96, 4096},     {2, 1000, 8, 2, 64, 1000},
    {2, 257, 2, 1, 64, 100},       {2, 53, 4, 2, 16, 53},         {1, 2048, 5, 1, 80, 2048},
};

static const struct {
  enum pen_op_kind kind;
  const char *name;
} ops[] = {{PEN_OP_ATTENTION, "ATTENTION"},
           {PEN_OP_ATTENTION_DX, "ATTENTION_DX"},
           {PEN_OP_ATTENTION_QKV, "ATTENTION_QKV"},
           {PEN_OP_ATTENTION_QKV_DX, "ATTENTION_QKV_DX"}};
enum { OPS = sizeof ops / sizeof *ops, CASES = OPS * sizeof shapes / sizeof *shapes };

static const char *name_of(enum pen_op_kind kind) {
  size_t i = 0;
  while (ops[i].kind != kind) i++;
  return ops[i].name;
}

static const char *shape_text(enum pen_op_kind kind, const int64_t *dim) {
  static char text[120];
  snprintf(text, sizeof text, "%s %lldx%lld h%lld/%lld d%lld window %lld", name_of(kind),
           (long long)dim[0], (long long)dim[1], (long long)dim[2], (long long)dim[3],
           (long long)dim[4], (long long)dim[5]);
  return text;
}

static struct pen_cudnn_engine engine_of(enum pen_op_kind kind, const int64_t *dim) {
  struct pen_cudnn_engine engine = {"", 0};
  const char *why = pen_cudnn_choose(&engine, kind, dim, description);
  if (why != NULL) fail_msg("%s: %s", shape_text(kind, dim), why);
  return engine;
}

static void every_shape_has_an_engine(void **state) {
  (void)state;
  static const char *const formulas[PEN_OP_COUNT] = {
#undef PEN_CUDNN
#define PEN_CUDNN
#define PEN_CUDA_ROW(kind, workspace) [PEN_OP_##kind] = workspace,
#include "kernels/cuda/ops.def"
  };
  for (size_t i = 0; i < CASES; i++) {
    const enum pen_op_kind kind = ops[i % OPS].kind;
    const int64_t *dim = shapes[i / OPS];
    const struct pen_cudnn_engine engine = engine_of(kind, dim);
    const size_t reserved = pen_cudnn_reserved_bytes(kind, dim),
                 all = pen_cuda_cudnn.workspace_bytes(kind, dim),
                 plan = pen_workspace_bytes(formulas[kind], kind, PEN_BF16, dim);
    printf("# %s: %s, workspace %zu of %zu bytes\n", shape_text(kind, dim), engine.name,
           engine.workspace_bytes, reserved);
    if ((is_linear && engine.workspace_bytes > reserved) || reserved > all || all > plan)
      fail_msg("%s: it wants %zu bytes of %zu, with gradients %zu, and the plan has %zu",
               shape_text(kind, dim), engine.workspace_bytes, reserved, all, plan);
  }
}

/* Nor does it matter whether q, k and v share rows. */
static void batch_and_heads_do_not_choose(void **state) {
  (void)state;
  for (size_t i = 0; i < CASES; i++) {
    const enum pen_op_kind kind = ops[i % OPS].kind;
    int64_t one[PEN_DIMS_MAX];
    memcpy(one, shapes[i / OPS], sizeof one);
    one[0] = one[2] = one[3] = 1;
    assert_string_equal(engine_of(ops[i % 2].kind, one).name,
                        engine_of(kind, shapes[i / OPS]).name);
  }
}

static void other_head_dims_have_none(void **state) {
  (void)state;
  struct pen_cudnn_engine engine;
  assert_non_null(pen_cudnn_choose(&engine, PEN_OP_ATTENTION,
                                   (int64_t[PEN_DIMS_MAX]){1, 64, 1, 1, 12, 64}, description));
  assert_non_null(pen_cudnn_choose(&engine, PEN_OP_ATTENTION, shapes[0], "{\"deviceVer\": 900}"));
}

static int skip_all(const char *why) {
  printf("1..0 # SKIP %s\n", why);
  return 0;
}

int main(int argc, char **argv) {
  const char *why = NULL, *root = getenv("top_srcdir");
  char path[1024];
  snprintf(path, sizeof path, "%s/tests/gpu/h100.json", root == NULL ? "." : root);
  FILE *file = fopen(argc > 1 ? argv[1] : path, "r");
  if (file == NULL || fread(description, 1, sizeof description - 1, file) == 0) {
    fprintf(stderr, "%s: no description\n", argc > 1 ? argv[1] : path);
    return 1;
  }
  fclose(file);
  if (dlopen("libcuda.so.1", RTLD_NOW) == NULL &&
      dlopen(PEN_CUDA_STUBS "/libcuda.so", RTLD_NOW) == NULL)
    return skip_all("there is no libcuda.so.1, and no stub of it in " PEN_CUDA_STUBS);
  const char *name = pen_cudnn_load(&why);
  int major = 0, minor = 0;
  if (name == NULL) return skip_all(why);
  assert_int_equal(sscanf(name, "cuDNN %d.%d", &major, &minor), 2);
  is_linear = major > 9 || minor >= 25;
  printf("# %s\n", name);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_shape_has_an_engine),
      cmocka_unit_test(batch_and_heads_do_not_choose),
      cmocka_unit_test(other_head_dims_have_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
  puts("1..0 # SKIP configure found no headers of cuDNN and cudnn-frontend");
  return 0;
}
#endif
