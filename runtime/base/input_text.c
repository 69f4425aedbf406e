/* input_text.c: which ids an input may have, in words (see input_text.h). */
#include "runtime/base/input_text.h"

#include <stdio.h>

#include "runtime/plan/plan.h"

const char *pen_ids_text(char text[PEN_IDS_TEXT_BYTES], uint64_t limit, bool may_ignore) {
  if (limit == 0) {
    return "ids have 32 bits";
  }
  const int bytes = snprintf(text, PEN_IDS_TEXT_BYTES, "ids from 0 to %" PRIu64, limit - 1);
  if (may_ignore) {
    snprintf(text + bytes, PEN_IDS_TEXT_BYTES - (size_t)bytes, ", or %d", PEN_IGNORED_TARGET);
  }
  return text;
}
