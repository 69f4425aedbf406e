/* audit_report.c: the line that names what an audit found (see audit_report.h). */
#include "runtime/exec/audit_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/comm/action_text.h"
#include "runtime/exec/tensor_sum.h"

enum { ELEMENT_TEXT_BYTES = 40 };

/* An element such that other bits give another text. */
static void element_text(char text[ELEMENT_TEXT_BYTES], int dtype, const unsigned char *element) {
  union {
    float f32;
    double f64;
    int32_t i32;
    uint32_t bits;
    uint64_t bits64;
    uint16_t half[2];
  } value = {.bits64 = 0};
  memcpy(dtype == PEN_BF16 ? (void *)&value.half[1] : (void *)&value, element,
         pen_dtype_bytes(dtype));
  if (dtype == PEN_I32) {
    snprintf(text, ELEMENT_TEXT_BYTES, "%" PRId32, value.i32);
  } else if (dtype == PEN_F64 && !isnan(value.f64)) {
    snprintf(text, ELEMENT_TEXT_BYTES, "%.17g", value.f64);
  } else if (dtype != PEN_F64 && !isnan(value.f32)) {
    snprintf(text, ELEMENT_TEXT_BYTES, "%.9g", (double)value.f32);
  } else {
    snprintf(text, ELEMENT_TEXT_BYTES, "nan(0x%" PRIx64 ")", value.bits64);
  }
}

/* ", element N: A, then B" of two memories, which differ. */
static void difference_text(char *text, size_t bytes, const struct pen_tensor *tensor,
                            uint64_t first_element, const unsigned char *before,
                            const unsigned char *after, uint64_t size) {
  const uint32_t element_bytes = pen_dtype_bytes(tensor->dtype);
  uint64_t at = 0;
  while (at + element_bytes < size && memcmp(before + at, after + at, element_bytes) == 0) {
    at += element_bytes;
  }
  char a[ELEMENT_TEXT_BYTES], b[ELEMENT_TEXT_BYTES];
  element_text(a, tensor->dtype, before + at);
  element_text(b, tensor->dtype, after + at);
  snprintf(text, bytes, "element %" PRIu64 ": %s, then %s", first_element + at / element_bytes, a,
           b);
}

/* The same where only checksums are known of what was written. */
static void sum_text(char *text, size_t bytes, const struct pen_audit_finding *finding) {
  enum { LARGEST_ELEMENT = 8 };
  const struct pen_tensor *tensor = finding->tensor;
  const struct pen_audit_sum now = pen_tensor_sum(finding->has, tensor->bytes);
  uint64_t word;
  uint32_t was;
  if (!pen_tensor_sum_locate(finding->written, now, finding->has, tensor->bytes, &word, &was)) {
    snprintf(text, bytes,
             "several elements: checksum %016" PRIx64 "%016" PRIx64 ", then %016" PRIx64
             "%016" PRIx64,
             finding->written.words, finding->written.weighted, now.words, now.weighted);
    return;
  }
  unsigned char before[LARGEST_ELEMENT] = {0}, after[LARGEST_ELEMENT] = {0};
  const uint64_t at = word * sizeof was / LARGEST_ELEMENT * LARGEST_ELEMENT,
                 left = tensor->bytes - at, size = left < LARGEST_ELEMENT ? left : LARGEST_ELEMENT;
  memcpy(before, finding->has + at, size);
  memcpy(after, before, sizeof after);
  memcpy(before + (word * sizeof was - at), &was, sizeof was);
  difference_text(text, bytes, tensor, finding->first_element + at / pen_dtype_bytes(tensor->dtype),
                  before, after, size);
}

void pen_audit_report(const struct pen_endpoint *endpoint,
                      const struct pen_audit_finding *finding) {
  const struct pen_rank_state *self = endpoint->self;
  char action[64], difference[256], writer[32] = "";
  pen_action_name(action, sizeof action, finding->action);
  if (finding->computed != NULL) {
    difference_text(difference, sizeof difference, finding->tensor, finding->first_element,
                    finding->has, finding->computed, finding->tensor->bytes);
  } else {
    sum_text(difference, sizeof difference, finding);
    snprintf(writer, sizeof writer, ", from rank %" PRIu32, finding->writer);
  }
  pen_fail(
      PEN_EXIT_AUDIT, "rank %" PRIu32 " (pid %" PRId32 ", host %s) %s other bits: %s, %s, %s%s",
      endpoint->global, self->process, self->host, finding->computed != NULL ? "computed" : "read",
      action, finding->tensor->name, difference, writer);
}
