/* bench_products.c: see bench_products.h. */
#include "tests/gpu/bench_products.h"

#include <math.h>
#include <stdio.h>

#include "kernels/cuda/product.h"

enum { ALGORITHMS_MAX = 8 };

/* The names of the tiles and stages that are usual; of others the number in cublasLt.h. */
#define TILE(size) [CUBLASLT_MATMUL_TILE_##size] = #size
#define STAGES(size) [CUBLASLT_MATMUL_STAGES_##size] = #size
static const char *const tiles[] = {
    TILE(32x32),   TILE(32x64),   TILE(64x32),   TILE(32x128),  TILE(64x64),   TILE(128x32),
    TILE(64x128),  TILE(128x64),  TILE(64x256),  TILE(128x128), TILE(256x64),  TILE(64x512),
    TILE(128x256), TILE(256x128), TILE(512x64),  TILE(64x96),   TILE(96x64),   TILE(96x128),
    TILE(128x160), TILE(160x128), TILE(192x128), TILE(128x192), TILE(128x96),  TILE(32x256),
    TILE(256x32),  TILE(64x192),  TILE(128x320), TILE(192x64),  TILE(192x192), TILE(192x256),
    TILE(256x192),
};
static const char *const stages[] = {
    STAGES(16x2),    STAGES(16x3),   STAGES(16x4),    STAGES(16x5),    STAGES(32x2),
    STAGES(32x3),    STAGES(32x4),   STAGES(32x5),    STAGES(32x6),    STAGES(64x2),
    STAGES(64x3),    STAGES(64x4),   STAGES(64x5),    STAGES(64x6),    STAGES(128x2),
    STAGES(128x3),   STAGES(128x4),  STAGES(8x4),     STAGES(8x5),     STAGES(8x3),
    STAGES(16xAUTO), STAGES(8xAUTO), STAGES(32xAUTO), STAGES(64xAUTO), STAGES(128xAUTO),
};

static uint32_t attribute(const cublasLtMatmulAlgo_t *algorithm,
                          cublasLtMatmulAlgoConfigAttributes_t what) {
  uint32_t value = 0;
  size_t written;
  if (cublasLtMatmulAlgoConfigGetAttribute(algorithm, what, &value, sizeof value, &written) !=
      CUBLAS_STATUS_SUCCESS)
    give_up("asking for what an algorithm does");
  return value;
}

static void print_name(const char *what, const char *const *names, size_t count, uint32_t id) {
  if (id < count && names[id] != NULL)
    printf(" %s %s,", what, names[id]);
  else
    printf(" %s no. %u,", what, id);
}

static void print_algorithm(const char *which, const cublasLtMatmulHeuristicResult_t *of) {
  printf("; %s:", which);
  print_name("tile", tiles, sizeof tiles / sizeof *tiles,
             attribute(&of->algo, CUBLASLT_ALGO_CONFIG_TILE_ID));
  print_name("stages", stages, sizeof stages / sizeof *stages,
             attribute(&of->algo, CUBLASLT_ALGO_CONFIG_STAGES_ID));
  printf(" split-k %u, waves %.2f", attribute(&of->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
         (double)of->wavesCount);
}

void print_algorithms(struct calls *product, void *stream, double window_us) {
  cublasLtMatmulHeuristicResult_t of[ALGORITHMS_MAX];
  double seconds[ALGORITHMS_MAX];
  void *prepared = product->call[0].prepared; /* of all sets: they have one shape */
  const int count = pen_cuda_product_algorithms(prepared, of, ALGORITHMS_MAX);
  int best = 0;
  for (int i = 0; i < count; i++) {
    pen_cuda_product_use(prepared, &of[i].algo);
    seconds[i] = seconds_of(call_once, product, stream, window_us);
    if (seconds[i] < seconds[best]) best = i;
  }
  if (count == 0) give_up("algorithms of a product");
  pen_cuda_product_use(prepared, &of[0].algo);
  printf("  algorithms: first %.1f us, best %.1f us of %d", seconds[0] * 1e6, seconds[best] * 1e6,
         count);
  print_algorithm("first", &of[0]);
  print_algorithm("best", &of[best]);
  printf("\n");
  fflush(stdout);
}

void print_sustained(const char *shape, struct calls *product, void *stream, double operations,
                     double batch_s, int batches) {
  double seconds[BATCHES_MAX];
  const double one = seconds_of(call_once, product, stream, 0);
  const int count = (int)fmax(1, batch_s / one);
  batch_seconds(call_once, product, stream, count, batches, seconds);
  double total = 0;
  for (int b = 0; b < batches; b++) total += seconds[b];
  printf("%-22s %-32s %10.1f s   first %.0f ms %7.1f TFLOP/s, last %.0f ms %7.1f TFLOP/s\n",
         "sustained", shape, total, seconds[0] * 1e3, count * operations / seconds[0] * 1e-12,
         seconds[batches - 1] * 1e3, count * operations / seconds[batches - 1] * 1e-12);
  fflush(stdout);
}
