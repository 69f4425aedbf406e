/* sample.c: samples a token from logits (see sample.h). */
#include "runtime/commands/sample.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

double pen_uniform(uint64_t key, uint64_t first, uint64_t second) {
  const uint64_t step = 0x9e3779b97f4a7c15u;
  return (double)(mix(mix(key + (first + 1) * step) + (second + 1) * step) >> 11) * 0x1p-53;
}

/* Returns the k-th largest of x[count], k from 1; reorders x (Hoare 1961). */
static double kth_largest(double *x, size_t count, size_t k) {
  size_t low = 0, high = count - 1;
  while (low < high) {
    double pivot = x[low + (high - low) / 2];
    size_t i = low, j = high;
    while (i <= j) {
      while (x[i] > pivot) {
        i++;
      }
      while (x[j] < pivot) {
        j--;
      }
      if (i <= j) {
        double swap = x[i];
        x[i++] = x[j];
        x[j] = swap;
        if (j-- == 0) {
          break;
        }
      }
    }
    if (j != SIZE_MAX && k - 1 <= j) {
      high = j;
    } else if (k - 1 >= i) {
      low = i;
    } else {
      break;
    }
  }
  return x[k - 1];
}

/* The smallest logit that may be sampled. */
static double threshold(const float *logits, size_t count, uint64_t top_k, double *work) {
  if (top_k == 0 || top_k >= count) {
    return -(double)INFINITY;
  }
  for (size_t i = 0; i < count; i++) {
    work[i] = (double)logits[i];
  }
  return kth_largest(work, count, (size_t)top_k);
}

/* ---- top_p ---- */

/* Of equal logits the lower index is the likelier. */
static bool is_likelier(const float *logits, uint32_t a, uint32_t b) {
  return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Moves heap[at] down to where no child is likelier. */
static void sift(const float *logits, uint32_t *heap, size_t count, size_t at) {
  for (size_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && is_likelier(logits, heap[child + 1], heap[child])) {
      child++;
    }
    if (!is_likelier(logits, heap[child], heap[at])) {
      return;
    }
    const uint32_t swap = heap[at];
    heap[at] = heap[child];
    heap[child] = swap;
  }
}

static double sum_of(const double *weights, size_t count) {
  double sum = 0.0;
  for (size_t i = 0; i < count; i++) {
    sum += weights[i];
  }
  return sum;
}

/* Takes the likeliest tokens from a heap until they have top_p of the sum. The weights of those
 * that are left become 0. */
static void keep_top_p(const float *logits, size_t count, double top_p, double *weights,
                       uint32_t *heap) {
  const double enough = top_p * sum_of(weights, count);
  size_t left = 0;
  for (size_t i = 0; i < count; i++) {
    if (weights[i] > 0.0) {
      heap[left++] = (uint32_t)i;
    }
  }
  for (size_t i = left / 2; i-- > 0;) {
    sift(logits, heap, left, i);
  }
  for (double taken = 0.0; left > 0 && taken < enough;) {
    taken += weights[heap[0]];
    heap[0] = heap[--left];
    sift(logits, heap, left, 0);
  }
  for (size_t i = 0; i < left; i++) {
    weights[heap[i]] = 0.0;
  }
}

/* ---- all steps ---- */

size_t pen_sample(const float *logits, size_t count, const struct pen_sampling *sampling,
                  double uniform, double *weights, uint32_t *order) {
  size_t likeliest = 0;
  for (size_t i = 1; i < count; i++) {
    likeliest = logits[i] > logits[likeliest] ? i : likeliest;
  }
  if (sampling->temperature == 0.0) {
    return likeliest;
  }
  const double least = threshold(logits, count, sampling->top_k, weights),
               most = (double)logits[likeliest];
  for (size_t i = 0; i < count; i++) {
    weights[i] =
        (double)logits[i] >= least ? exp(((double)logits[i] - most) / sampling->temperature) : 0.0;
  }
  if (sampling->top_p < 1.0) {
    keep_top_p(logits, count, sampling->top_p, weights, order);
  }
  for (size_t i = 0; i < count; i++) { /* the likeliest has 1 */
    weights[i] = weights[i] < sampling->min_p ? 0.0 : weights[i];
  }
  double left = uniform * sum_of(weights, count);
  for (size_t i = 0; i < count; i++) {
    left -= weights[i];
    if (left < 0.0) {
      return i;
    }
  }
  return likeliest; /* rounding of the sum */
}

void pen_penalise_repetition(float *to, const float *logits, size_t count, const uint32_t *tokens,
                             uint64_t token_count, double penalty) {
  memcpy(to, logits, count * sizeof *to);
  for (uint64_t t = 0; t < token_count; t++) {
    const double logit = (double)logits[tokens[t]],
                 penalised = logit > 0.0 ? logit / penalty : logit * penalty;
    to[tokens[t]] = (float)fmax(fmin(penalised, (double)FLT_MAX), -(double)FLT_MAX);
  }
}
