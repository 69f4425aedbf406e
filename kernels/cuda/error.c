/* error.c: keeps the first error of the CUDA backend as text, until pen_cuda_replace_error(). */
#include <stdatomic.h>
#include <stdio.h>

#include "kernels/cuda/cuda.h"

/* Any thread may note or read the error: it is read only after it is complete. */
enum { NO_ERROR, ERROR_INCOMPLETE, ERROR_COMPLETE };
static char error_text[200];
static atomic_int error_state;

void pen_cuda_note_text(const char *what, const char *why) {
  int none = NO_ERROR;
  if (atomic_compare_exchange_strong(&error_state, &none, ERROR_INCOMPLETE)) {
    snprintf(error_text, sizeof error_text, "%s: %s", what, why);
    atomic_store(&error_state, ERROR_COMPLETE);
  }
}

void pen_cuda_note(const char *what, cudaError_t error) {
  if (error != cudaSuccess) pen_cuda_note_text(what, cudaGetErrorString(error));
}

const char *pen_cuda_error(void) {
  return atomic_load(&error_state) == ERROR_COMPLETE ? error_text : NULL;
}

const char *pen_cuda_replace_error(const char *text) {
  static char previous[sizeof error_text];
  snprintf(previous, sizeof previous, "%s", pen_cuda_error() == NULL ? "" : error_text);
  snprintf(error_text, sizeof error_text, "%s", text);
  atomic_store(&error_state, text[0] == '\0' ? NO_ERROR : ERROR_COMPLETE);
  return previous;
}
