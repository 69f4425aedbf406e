/* pointwise.cu: POINTWISE and POINTWISE_DX: a program of steps for each element.
 *
 * Launch: element-wise, a thread for each 16 bytes of T; one element a thread where a row that
 * broadcasts, or the whole, is no multiple of that, or a block would have more than 48 KiB of
 * shared memory. All threads run the same step, which is an argument of the launch. Operands and
 * registers are in shared memory, each thread's own: registers have no index. Traffic: each operand
 * once. */
#include "kernels/cuda/exponential.cuh"

namespace {

enum { ROW_OPERAND = 4, COLUMN_OPERAND = 6, SHARED_BYTES = 48 << 10 };

/* The steps, as in struct pen_steps; values are numbers of places in shared memory, of which the
 * operands that are read come first. */
struct program {
  int32_t count, operand_count, places;
  uint8_t operand[PEN_STEP_OPERANDS]; /* of each of these places */
  uint8_t kind[PEN_STEPS_MAX], to[PEN_STEPS_MAX], a[PEN_STEPS_MAX], b[PEN_STEPS_MAX],
      c[PEN_STEPS_MAX];
  float number[PEN_STEPS_MAX];
};

struct pointers {
  const void *operand[PEN_STEP_OPERANDS];
};

/* ---- the functions of steps.def ---- */

__device__ inline float number(double x) { return (float)x; }
__device__ inline float choose(bool mask, float a, float b) { return mask ? a : b; }
__device__ inline float square_root(float x) { return sqrtf(x); }
__device__ inline float absolute(float x) { return fabsf(x); }
__device__ inline float step_log(float x) { return logf(x); }
__device__ inline float step_tanh(float x) { return tanhf(x); }
__device__ inline float step_erf(float x) { return erff(x); }
__device__ inline float step_softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
#define step_exp exponential<T>
#define step_sigmoid sigmoid<T>

/* ---- the kernel ---- */

template <int N>
__device__ inline lanes<N> all(float x) {
  lanes<N> y;
#pragma unroll
  for (int k = 0; k < N; k++) y.v[k] = x;
  return y;
}

/* Operand k of the elements i .. i+N-1, all of one row. */
template <class T, int N>
__device__ inline lanes<N> read(const void *x, int k, int64_t i, int width) {
  if (x == nullptr) return all<N>(0.0f);
  if (k < ROW_OPERAND || k == PEN_STEP_GRADIENT) return load<N>((const T *)x + i);
  if (k < COLUMN_OPERAND) return load<N>((const float *)x + i % width);
  return all<N>(widen(((const T *)x)[i / width]));
}

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    run_program(const program p, const pointers at, T *y, int64_t count, int width) {
  PEN_SHARED(memory);
  float *const own = (float *)memory + threadIdx.x * N;
  const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
  if (i >= count) return;
  for (int k = 0; k < p.operand_count; k++)
    store(own + k * THREADS * N, read<T, N>(at.operand[p.operand[k]], p.operand[k], i, width));
  lanes<N> result = {};
  for (int s = 0; s < p.count; s++) {
    switch (p.kind[s]) {
#define PLACE(place) load<N>((const float *)own + (place)*THREADS * N)
#define PEN_STEP(kind, inputs, gradient_a, gradient_b, gradient_c, value, meaning) \
  case PEN_STEP_##kind: {                                                          \
    const lanes<N> of_a = sizeof inputs > 1 ? PLACE(p.a[s]) : result,              \
                   of_b = sizeof inputs > 2 ? PLACE(p.b[s]) : of_a,                \
                   of_c = sizeof inputs > 3 ? PLACE(p.c[s]) : of_a;                \
    _Pragma("unroll") for (int k = 0; k < N; k++) {                                \
      const float a = of_a.v[k], b = of_b.v[k], c = of_c.v[k];                     \
      (void)a, (void)b, (void)c;                                                   \
      result.v[k] = value;                                                         \
    }                                                                              \
    break;                                                                         \
  }
#include "kernels/steps.def"
#undef PLACE
    }
    if (p.kind[s] == PEN_STEP_CONST) result = all<N>(p.number[s]);
    if (s + 1 < p.count) store(own + p.to[s] * THREADS * N, result);
  }
  store(y + i, result);
}

/* ---- launches ---- */

uint8_t place_of(const program *p, const int8_t place[PEN_STEP_OPERANDS], uint8_t value) {
  return (uint8_t)(value < PEN_STEP_OPERANDS ? place[value]
                                             : p->operand_count + value - PEN_STEP_OPERANDS);
}

program program_of(const struct pen_steps *steps) {
  program p = {};
  int8_t place[PEN_STEP_OPERANDS];
  memset(place, -1, sizeof place);
  p.count = (int32_t)steps->count;
  for (uint32_t s = 0; s < steps->count; s++) {
    const uint8_t input[] = {steps->a[s], steps->b[s], steps->c[s]};
    for (uint8_t k : input)
      if (steps->kind[s] != PEN_STEP_CONST && k < PEN_STEP_OPERANDS && place[k] < 0) {
        place[k] = (int8_t)p.operand_count;
        p.operand[p.operand_count++] = k;
      }
  }
  p.places = p.operand_count + (int32_t)steps->register_count;
  for (uint32_t s = 0; s < steps->count; s++) {
    p.kind[s] = steps->kind[s];
    p.to[s] = place_of(&p, place, (uint8_t)(PEN_STEP_OPERANDS + steps->to[s]));
    p.number[s] = (float)steps->number[s];
    if (p.kind[s] == PEN_STEP_CONST) continue;
    p.a[s] = place_of(&p, place, steps->a[s]);
    p.b[s] = place_of(&p, place, steps->b[s]);
    p.c[s] = place_of(&p, place, steps->c[s]);
  }
  return p;
}

bool broadcasts(const program *p) {
  for (int k = 0; k < p->operand_count; k++)
    if (p->operand[k] >= ROW_OPERAND && p->operand[k] < PEN_STEP_GRADIENT) return true;
  return false;
}

template <class T, int N>
void launch(const struct pen_call *call, const program *p, T *y) {
  const auto kernel = run_program<T, N>;
  const int64_t count = call->dim[0] * call->dim[1];
  pointers at;
  for (int k = 0; k < PEN_STEP_OPERANDS; k++) at.operand[k] = call->operand[k];
  if (count > 0)
    PEN_LAUNCH(kernel, dim3((unsigned)ceiling(count, N * THREADS)), dim3(THREADS),
               (size_t)p->places * THREADS * N * sizeof(float), call->stream, *p, at, y, count,
               (int)call->dim[1]);
}

template <class T>
void run_of(const struct pen_call *call, T *y) {
  const program p = program_of(&call->steps);
  const int64_t unit = broadcasts(&p) ? call->dim[1] : call->dim[0] * call->dim[1];
  if (is_wide<T>(unit) && p.places * THREADS * WIDE<T> * (int)sizeof(float) <= SHARED_BYTES)
    launch<T, WIDE<T>>(call, &p, y);
  else
    launch<T, 1>(call, &p, y);
}

template <class T>
void pointwise_of(const struct pen_call *call) {
  run_of(call, (T *)call->operand[PEN_STEP_OPERANDS - 1]);
}
template <class T>
void pointwise_dx_of(const struct pen_call *call) {
  run_of(call, (T *)call->operand[PEN_STEP_OPERANDS]);
}

} /* namespace */

PEN_CUDA_BOTH(pointwise)
PEN_CUDA_BOTH(pointwise_dx)
