/* peak_rate.c: times products of square matrices (see peak_rate.h).
 *
 * The sides double until a product takes so long that what a call costs besides does not count, or
 * there is no memory. The elements are normal, since the power that a device draws, and so its
 * clock, depends on them. As for blocks the clock of the CPU is that of the thread. */
#include "runtime/commands/peak_rate.h"

#include <math.h>
#include <sys/mman.h>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/exec/find_device.h"
#include "runtime/observe/trace.h"

enum { SIDE_MIN = 128, SIDE_MAX = 8192, CALLS = 8 };
static const double long_ns = 20e6;

struct peak_run {
  const struct pen_plan *plan;
  double *tflops; /* [ranks] in memory that they share */
};

/* A product y = x w^T; tensor: x, w, y, and what it needs besides. */
struct timed_product {
  const struct pen_device *device;
  enum pen_dtype dtype;
  pen_kernel *run;
  struct pen_call call;
  void *tensor[4];
};

static void fill(const struct timed_product *product, void *to, uint64_t first, size_t count) {
  static const uint32_t key[2];
  const struct pen_device *device = product->device;
  float *values = product->dtype == PEN_BF16 ? product->tensor[2] : to;
  device->normal(values, count, first, key, 1.0, product->call.stream);
  if (product->dtype == PEN_BF16) {
    device->f32_to_bf16(to, values, count, product->call.stream);
  }
}

/* False: there is no memory for it. */
static bool open_product(struct timed_product *product, int64_t side) {
  const struct pen_device *device = product->device;
  const size_t count = (size_t)side * (size_t)side;
  product->call.dim[0] = product->call.dim[1] = product->call.dim[2] = side;
  const size_t workspace =
      device->workspace_bytes(PEN_OP_LINEAR, product->dtype, product->call.dim);
  bool opened = true;
  for (int t = 0; t < 4; t++) {
    product->tensor[t] = device->allocate(t < 3 ? count * sizeof(float) : workspace + 1);
    opened = opened && product->tensor[t] != NULL;
  }
  if (opened) {
    fill(product, product->tensor[0], 0, count);
    fill(product, product->tensor[1], count, count);
    product->call.operand[0] = product->tensor[0];
    product->call.operand[1] = product->tensor[1];
    product->call.operand[3] = product->tensor[2];
    product->call.workspace = product->tensor[3];
    product->call.prepared =
        device->prepare(PEN_OP_LINEAR, product->dtype, product->call.dim, product->call.real);
  }
  return opened;
}

static void close_product(const struct timed_product *product) {
  for (int t = 0; t < 4; t++) {
    if (product->tensor[t] != NULL) {
      product->device->release(product->tensor[t]);
    }
  }
}

/* The least time of a call; the first one does not count. */
static double least_ns(const struct timed_product *product) {
  const struct pen_trace clock = {.of_processor = !product->device->asynchronous};
  double least = INFINITY;
  for (int c = 0; c <= CALLS; c++) {
    product->device->stream_synchronize(product->call.stream);
    const uint64_t start_ns = pen_trace_now_ns(&clock);
    product->run(&product->call);
    product->device->stream_synchronize(product->call.stream);
    const double took_ns = (double)(pen_trace_now_ns(&clock) - start_ns);
    least = c > 0 && took_ns < least ? took_ns : least;
  }
  return least;
}

static void measure_rate(void *context, uint32_t rank) {
  const struct peak_run *peak = context;
  struct timed_product product = {.device = pen_device_find(peak->plan->device),
                                  .dtype = peak->plan->dtype};
  const struct pen_device *device = product.device;
  pen_check(device->asynchronous || pen_threads_open(peak->plan->threads_per_rank),
            "cannot start %u threads", peak->plan->threads_per_rank);
  pen_check(device->open(0) != NULL, "%s", device->error());
  product.run = device->kernel_of(PEN_OP_LINEAR, product.dtype);
  product.call.stream = device->stream_create();
  double took_ns = 0;
  for (int64_t side = SIDE_MIN; side <= SIDE_MAX && took_ns < long_ns; side *= 2) {
    const bool opened = open_product(&product, side);
    took_ns = opened ? least_ns(&product) : INFINITY;
    close_product(&product);
    pen_check(!opened || device->error() == NULL, "%s", device->error());
    const double tflops = 2e-3 * (double)side * (double)side * (double)side / took_ns;
    peak->tflops[rank] = fmax(peak->tflops[rank], tflops);
  }
}

double pen_peak_tflops(const struct pen_plan *plan, const struct pen_busy_cores *cores) {
  double most = 0;
  struct peak_run peak = {plan, pen_timed_memory(cores->count * sizeof *peak.tflops)};
  pen_timed_ranks_run(cores->count, cores, INFINITY, measure_rate, &peak);
  for (uint32_t r = 0; r < cores->count; r++) {
    most = fmax(most, peak.tflops[r]);
  }
  munmap(peak.tflops, cores->count * sizeof *peak.tflops);
  return most;
}
