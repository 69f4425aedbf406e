/* elementwise.c: SCALE, ADD, SWIGLU, GELU, GELU_TANH, GEGLU and their gradients, element by
 * element; SWIGLU_FUSED and GEGLU_FUSED a row at a time. An output may be the input that ops.def
 * names: each step loads all its inputs before it stores. */
#include "kernels/cpu/vector/functions.h"
#include "kernels/cpu/vector/isa.h"

#define FOR_EACH_VECTOR(i, n, count) \
  for (size_t i = 0, n = (count); i < (size_t)(count); i += LANES, n -= LANES)

void PEN_NAME(scale)(const struct pen_call *call) {
  const stored *x = call->operand[0];
  stored *y = call->operand[1];
  const float factor = (float)call->real[0];
  FOR_EACH_VECTOR(i, n, (size_t)call->dim[0]) store_n(y + i, load_n(x + i, n) * factor, n);
}

void PEN_NAME(add)(const struct pen_call *call) {
  const stored *x = call->operand[0], *z = call->operand[1];
  stored *y = call->operand[2];
  FOR_EACH_VECTOR(i, n, (size_t)call->dim[0])
  store_n(y + i, load_n(x + i, n) + load_n(z + i, n), n);
}

/* y = gate sigmoid(gate) up (Shazeer 2020) */
void PEN_NAME(swiglu)(const struct pen_call *call) {
  const stored *gate = call->operand[0], *up = call->operand[1];
  stored *y = call->operand[2];
  FOR_EACH_VECTOR(i, n, (size_t)call->dim[0]) {
    vf g = load_n(gate + i, n);
    store_n(y + i, g * sigmoid(g) * load_n(up + i, n), n);
  }
}

/* With s = sigmoid(gate): dup = dy gate s, dgate = dy up s (1 + gate (1 - s)). */
void PEN_NAME(swiglu_dx)(const struct pen_call *call) {
  const stored *dy = call->operand[0], *gate = call->operand[1], *up = call->operand[2];
  stored *dgate = call->operand[3], *dup = call->operand[4];
  FOR_EACH_VECTOR(i, n, (size_t)call->dim[0]) {
    vf g = load_n(gate + i, n), u = load_n(up + i, n), d = load_n(dy + i, n);
    vf s = sigmoid(g);
    vf ds = d * s;
    store_n(dgate + i, ds * u * madd(g, 1.0f - s, splat(1.0f)), n);
    store_n(dup + i, ds * g, n);
  }
}

/* y = x Phi(x): the exact form, no tanh (Hendrycks and Gimpel 2016) */
void PEN_NAME(gelu)(const struct pen_call *call) {
  const stored *x = call->operand[0];
  stored *y = call->operand[1];
  FOR_EACH_VECTOR(i, n, (size_t)call->dim[0]) {
    vf v = load_n(x + i, n), distribution, density;
    normal_distribution(v, &distribution, &density);
    store_n(y + i, v * distribution, n);
  }
}

void PEN_NAME(gelu_dx)(const struct pen_call *call) {
  const stored *dy = call->operand[0], *x = call->operand[1];
  stored *dx = call->operand[2];
  FOR_EACH_VECTOR(i, n, (size_t)call->dim[0]) {
    vf v = load_n(x + i, n), distribution, density;
    normal_distribution(v, &distribution, &density);
    store_n(dx + i, load_n(dy + i, n) * madd(v, density, distribution), n);
  }
}

/* The limit of |x|: beyond it GELU_TANH is exactly 0 or x. It keeps x^3 finite. */
#define GELU_TANH_LIMIT 16.0f

/* sigmoid(2u) and the derivative of 2u, u = sqrt(2/pi) (x + 0.044715 x^3) */
inline_always vf gelu_tanh_gate(vf x, vf *slope) {
  x = choose(x > GELU_TANH_LIMIT, splat(GELU_TANH_LIMIT),
             choose(x < -GELU_TANH_LIMIT, splat(-GELU_TANH_LIMIT), x));
  const vf square = x * x;
  *slope = madd(square, splat(0.2140644490f),
                splat(1.5957691216f)); /* 2 sqrt(2/pi) (1 + 3 0.044715 x^2) */
  return sigmoid(x * madd(square, splat(0.0713548163f),
                          splat(1.5957691216f))); /* 2 sqrt(2/pi) (1 + 0.044715 x^2) x */
}

/* y = x (1 + tanh(u))/2 = x sigmoid(2u) (Hendrycks and Gimpel 2016) */
void PEN_NAME(gelu_tanh)(const struct pen_call *call) {
  const stored *x = call->operand[0];
  stored *y = call->operand[1];
  FOR_EACH_VECTOR(i, n, (size_t)call->dim[0]) {
    vf v = load_n(x + i, n), slope;
    store_n(y + i, v * gelu_tanh_gate(v, &slope), n);
  }
}

void PEN_NAME(gelu_tanh_dx)(const struct pen_call *call) {
  const stored *dy = call->operand[0], *x = call->operand[1];
  stored *dx = call->operand[2];
  FOR_EACH_VECTOR(i, n, (size_t)call->dim[0]) {
    vf v = load_n(x + i, n), slope, gate = gelu_tanh_gate(v, &slope);
    store_n(dx + i, load_n(dy + i, n) * madd(v * gate, (1.0f - gate) * slope, gate), n);
  }
}

/* y = GELU_TANH(gate) up (Shazeer 2020) */
void PEN_NAME(geglu)(const struct pen_call *call) {
  const stored *gate = call->operand[0], *up = call->operand[1];
  stored *y = call->operand[2];
  FOR_EACH_VECTOR(i, n, (size_t)call->dim[0]) {
    vf g = load_n(gate + i, n), slope;
    store_n(y + i, g * gelu_tanh_gate(g, &slope) * load_n(up + i, n), n);
  }
}

/* With s = sigmoid(2u): dup = dy gate s, dgate = dy up (s + gate s (1 - s) 2u'). */
void PEN_NAME(geglu_dx)(const struct pen_call *call) {
  const stored *dy = call->operand[0], *gate = call->operand[1], *up = call->operand[2];
  stored *dgate = call->operand[3], *dup = call->operand[4];
  FOR_EACH_VECTOR(i, n, (size_t)call->dim[0]) {
    vf g = load_n(gate + i, n), u = load_n(up + i, n), d = load_n(dy + i, n);
    vf slope, s = gelu_tanh_gate(g, &slope);
    store_n(dgate + i, d * u * madd(g * s, (1.0f - s) * slope, s), n);
    store_n(dup + i, d * (g * s), n);
  }
}

/* Rows of x, and of dx, are gate, then up. */
static void unit_rows(const struct pen_call *call, pen_kernel *unit) {
  const size_t width = (size_t)call->dim[1];
  stored *x = call->operand[0], *y = call->operand[1];
  for (int64_t r = 0; r < call->dim[0]; r++, x += 2 * width, y += width)
    unit(&(struct pen_call){.operand = {x, x + width, y}, .dim = {call->dim[1]}});
}

static void unit_dx_rows(const struct pen_call *call, pen_kernel *unit) {
  const size_t width = (size_t)call->dim[1];
  stored *dy = call->operand[0], *x = call->operand[1], *dx = call->operand[2];
  for (int64_t r = 0; r < call->dim[0]; r++, dy += width, x += 2 * width, dx += 2 * width)
    unit(&(struct pen_call){.operand = {dy, x, x + width, dx, dx + width}, .dim = {call->dim[1]}});
}

#define FUSED(unit)                                                                             \
  void PEN_NAME(unit##_fused)(const struct pen_call *call) { unit_rows(call, PEN_NAME(unit)); } \
  void PEN_NAME(unit##_fused_dx)(const struct pen_call *call) {                                 \
    unit_dx_rows(call, PEN_NAME(unit##_dx));                                                    \
  }
FUSED(swiglu)
FUSED(geglu)
