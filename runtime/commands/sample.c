/* sample.c: samples a token from logits (see sample.h). */
#include "runtime/commands/sample.h"

#include <math.h>

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

size_t pen_sample(const float *logits, size_t count, double temperature, uint64_t top_k,
                  double uniform, double *weights) {
  size_t likeliest = 0;
  for (size_t i = 1; i < count; i++) {
    likeliest = logits[i] > logits[likeliest] ? i : likeliest;
  }
  if (temperature == 0.0) {
    return likeliest;
  }
  double least = threshold(logits, count, top_k, weights), most = (double)logits[likeliest],
         sum = 0.0;
  for (size_t i = 0; i < count; i++) {
    weights[i] = (double)logits[i] >= least ? exp(((double)logits[i] - most) / temperature) : 0.0;
    sum += weights[i];
  }
  double left = uniform * sum;
  for (size_t i = 0; i < count; i++) {
    left -= weights[i];
    if (left < 0.0) {
      return i;
    }
  }
  return likeliest; /* rounding of the sum */
}
