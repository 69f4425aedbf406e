/* input_text.h: what is said of a model's inputs that do not fit, of a file or of a program that
 * uses the library; the first argument is where they are. */
#ifndef PEN_INPUT_TEXT_H
#define PEN_INPUT_TEXT_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>

#define PEN_INPUT_IS_MISSING "%s: input %s: missing; %s is wanted"
#define PEN_INPUT_IS_OTHER "%s: input %s: it is %s %s, and %s is wanted"
#define PEN_INPUT_IS_NONE "%s: tensor %s: not an input of the model, which are %s"
#define PEN_INPUT_HAS_OTHER_ID \
  "%s: input %s: element %" PRIu64 " of sample %" PRIu64 " is %" PRId64 ": %s"

enum { PEN_IDS_TEXT_BYTES = 64 };

/* Which ids an input may have, below `limit` (0: any): "ids from 0 to 255, or -100". */
const char *pen_ids_text(char text[PEN_IDS_TEXT_BYTES], uint64_t limit, bool may_ignore);

#endif
