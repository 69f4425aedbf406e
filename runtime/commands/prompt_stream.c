/* prompt_stream.c: lines of token ids as prompts (see prompt_stream.h). */
#include "runtime/commands/prompt_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/output.h"
#include "runtime/plan/plan.h"

/* The first word of a part: how many ids follow, and what they end. */
enum { COUNT_MASK = 0xff, WHOLE = 0x100, END = 0x200, PART_IDS = PEN_PROMPTS_MAX - 1 };

static struct pen_prompt prompt;
static bool begun; /* a part of the prompt's line was taken */

/* In the rank that reads. */
static struct {
  char bytes[4096];
  size_t at, count;
  uint64_t line, ids; /* its number, and the ids of it so far */
} input = {.line = 1};

struct pen_prompts pen_prompt_stream_open(void) {
  prompt = (struct pen_prompt){.text = "",
                               .token = calloc(PEN_STREAM_TOKENS_MAX, sizeof *prompt.token),
                               .token_count = PEN_STREAM_TOKENS_MAX};
  pen_check(prompt.token != NULL, "no memory for a prompt of %d tokens", PEN_STREAM_TOKENS_MAX);
  return (struct pen_prompts){.prompt = &prompt, .count = 1};
}

static bool has_ended(const void *shared) {
  const struct pen_control *control = ((const struct pen_shared *)shared)->control;
  return atomic_load(&control->stop_requested) != 0 || atomic_load(&control->abort_status) != 0;
}

/* The next byte of standard input; -1: none comes. */
static int next_byte(const struct pen_shared *shared) {
  if (input.at == input.count) {
    ssize_t count;
    do {
      count = pen_output_await_input(STDIN_FILENO, has_ended, shared)
                  ? read(STDIN_FILENO, input.bytes, sizeof input.bytes)
                  : 0;
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
      pen_fail(PEN_EXIT_NO_INPUT, "--stream: cannot read standard input: %s", strerror(errno));
    }
    input.at = 0;
    input.count = (size_t)count;
  }
  return input.count == 0 ? -1 : (unsigned char)input.bytes[input.at++];
}

/* The next id, and the byte after it; none: -1, and the byte. */
static int64_t next_id(const struct pen_shared *shared, uint32_t vocab, int *after) {
  int64_t id = -1;
  int byte = next_byte(shared);
  for (; byte >= '0' && byte <= '9'; byte = next_byte(shared)) {
    id = (id < 0 ? 0 : id) * 10 + byte - '0';
    if (id >= vocab) {
      pen_fail(PEN_EXIT_DATA,
               "--stream: line %" PRIu64 ": %" PRId64 ": token ids below %u, separated by spaces",
               input.line, id, vocab);
    }
  }
  if (byte >= 0 && memchr(" \t\r\n", byte, 4) == NULL) {
    pen_fail(PEN_EXIT_DATA,
             "--stream: line %" PRIu64 ": byte %d: token ids below %u, separated by spaces",
             input.line, byte, vocab);
  }
  *after = byte;
  return id;
}

void pen_prompt_stream_read(const struct pen_shared *shared, uint32_t vocab,
                            _Atomic uint32_t *part) {
  uint32_t count = 0, ends = 0;
  while (count < PART_IDS && ends == 0) {
    int after;
    const int64_t id = next_id(shared, vocab, &after);
    if (id >= 0) {
      atomic_store_explicit(&part[++count], (uint32_t)id, memory_order_relaxed);
      input.ids++;
    }
    if (input.ids > PEN_STREAM_TOKENS_MAX) {
      pen_fail(PEN_EXIT_DATA, "--stream: line %" PRIu64 ": more than %d token ids", input.line,
               PEN_STREAM_TOKENS_MAX);
    }
    if (after == '\n' || after < 0) {
      ends = input.ids > 0 ? WHOLE : after < 0 ? END : 0;
      input.ids = 0;
      input.line++;
    }
  }
  atomic_store_explicit(&part[0], count | ends, memory_order_relaxed);
}

enum pen_prompt_part pen_prompt_stream_take(const _Atomic uint32_t *part) {
  const uint32_t first = atomic_load_explicit(&part[0], memory_order_relaxed);
  prompt.token_count = begun ? prompt.token_count : 0;
  prompt.kept = begun ? prompt.kept : 0;
  for (uint32_t i = 1; i <= (first & COUNT_MASK); i++) {
    const uint32_t token = atomic_load_explicit(&part[i], memory_order_relaxed);
    uint32_t *place = &prompt.token[prompt.token_count];
    prompt.kept += prompt.kept == prompt.token_count && *place == token;
    *place = token;
    prompt.token_count++;
  }
  begun = (first & WHOLE) == 0;
  return (first & END) != 0 ? PEN_PROMPT_NONE : begun ? PEN_PROMPT_PART : PEN_PROMPT_WHOLE;
}
