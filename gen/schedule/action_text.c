/* actions.c: reads and writes orders as text: one line a rank, `RANK: ACTION ACTION ...`, an action
 * is <stage><kind><microbatch>.
 *
 * The reader takes blank lines and lines that begin with '#' for comments, and `a|b` for a pair: a
 * overlaps b. Each rank has one line, in any order. */
#include "gen/schedule/action_text.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "runtime/plan/plan.h"

#include <stdio.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *text;
  bool printed;
} kinds[PEN_ACTION_KINDS] = {
#define PEN_ACTION(kind, text, printed, meaning) [PEN_##kind] = {text, printed},
#include "runtime/plan/actions.def"
};

const char *pen_action_text(char text[32], int kind, uint32_t stage, uint32_t microbatch) {
  if (!pen_kind_has_stage(kind))
    snprintf(text, 32, "%s", kinds[kind].text);
  else if (!pen_kind_has_microbatch(kind))
    snprintf(text, 32, "%u%s", stage, kinds[kind].text);
  else
    snprintf(text, 32, "%u%s%u", stage, kinds[kind].text, microbatch);
  return text;
}

void pen_actions_print(FILE *file, struct pen_action *const *action, const uint32_t *count,
                       uint32_t rank_count) {
  char text[32];
  for (uint32_t rank = 0; rank < rank_count; rank++) {
    fprintf(file, "%u:", rank);
    for (uint32_t index = 0; index < count[rank]; index++) {
      const struct pen_action *row = &action[rank][index];
      bool second = index > 0 && row[-1].overlaps;
      if (kinds[row->kind].printed)
        fprintf(file, "%c%s", second ? '|' : ' ',
                pen_action_text(text, row->kind, row->stage, row->microbatch));
    }
    fputc('\n', file);
  }
}

/* ---- the reader ---- */

struct reader {
  const char *path;
  const struct pen_partition *partition;
  struct pen_action **action;
  uint32_t *count;
  size_t *capacity;
  bool *seen;
  unsigned long line;
};

enum { SHOWN_BYTES = 40 }; /* of a bad word in a message */

/* Reads a whole number without sign; false when there is none or it exceeds 32 bits. */
static bool take_count(const char **at, uint32_t *number) {
  uint64_t value = 0;
  if (!isdigit((unsigned char)**at)) return false;
  for (; isdigit((unsigned char)**at); (*at)++)
    if ((value = value * 10 + (uint64_t)(**at - '0')) >= PEN_NONE) return false;
  *number = (uint32_t)value;
  return true;
}

/* The kind whose text fills [at, end), or -1. */
static int kind_of(const char *at, size_t length) {
  for (int kind = 0; kind < PEN_ACTION_KINDS; kind++)
    if (kinds[kind].printed && strlen(kinds[kind].text) == length &&
        memcmp(kinds[kind].text, at, length) == 0)
      return kind;
  return -1;
}

bool pen_action_take(const char **at, struct pen_action *row) {
  uint32_t stage, microbatch;
  if (!take_count(at, &stage)) return false;
  size_t length = 0;
  while (isalpha((unsigned char)(*at)[length]) || (*at)[length] == '_') length++;
  int kind = kind_of(*at, length);
  *at += length;
  if (kind < 0 || !take_count(at, &microbatch)) return false;
  if (**at && **at != '|' && !isspace((unsigned char)**at)) return false;
  *row = (struct pen_action){
      .kind = (uint8_t)kind, .stage = (uint16_t)stage, .microbatch = microbatch};
  return stage <= UINT16_MAX;
}

/* An action must be of an existing microbatch, on a stage of the rank that acts. */
static void check_action(const struct reader *reader, uint32_t rank, const struct pen_action *row) {
  const struct pen_partition *partition = reader->partition;
  char text[32];
  pen_action_text(text, row->kind, row->stage, row->microbatch);
  if (row->stage >= partition->stage_count)
    pen_stop(PEN_EXIT_DATA,
             "%s: rank %u, action %u (%s): there is no stage %u, the topology has %u", reader->path,
             rank, reader->count[rank], text, row->stage, partition->stage_count);
  if (partition->rank_of[row->stage] != rank)
    pen_stop(PEN_EXIT_DATA, "%s: rank %u, action %u (%s): stage %u is on rank %u", reader->path,
             rank, reader->count[rank], text, row->stage, partition->rank_of[row->stage]);
  if (row->microbatch >= partition->microbatch_count)
    pen_stop(PEN_EXIT_DATA,
             "%s: rank %u, action %u (%s): there is no microbatch %u, the topology has %u",
             reader->path, rank, reader->count[rank], text, row->microbatch,
             partition->microbatch_count);
}

/* Reads `RANK:`; returns the rank. */
static uint32_t take_rank(struct reader *reader, const char **at) {
  const char *word = *at;
  uint32_t rank;
  if (!take_count(at, &rank) || **at != ':')
    pen_stop(PEN_EXIT_DATA, "%s:%lu: \"%.*s\": a line is `RANK: ACTION ACTION ...`", reader->path,
             reader->line, SHOWN_BYTES, word);
  (*at)++;
  if (rank >= reader->partition->rank_count)
    pen_stop(PEN_EXIT_DATA, "%s:%lu: there is no rank %u, the topology has %u", reader->path,
             reader->line, rank, reader->partition->rank_count);
  if (reader->seen[rank])
    pen_stop(PEN_EXIT_DATA, "%s:%lu: rank %u has a line already", reader->path, reader->line, rank);
  reader->seen[rank] = true;
  return rank;
}

static const char *skip_space(const char *at) {
  while (isspace((unsigned char)*at)) at++;
  return at;
}

static void read_line(struct reader *reader, const char *at) {
  at = skip_space(at);
  if (*at == 0 || *at == '#') return;
  uint32_t rank = take_rank(reader, &at);
  bool second = false; /* right behind a '|' an action must follow */
  for (at = skip_space(at); *at || second; at = second ? at : skip_space(at)) {
    const char *word = at;
    struct pen_action row;
    if (!pen_action_take(&at, &row)) {
      int length = (int)strcspn(word, " \t\r\n");
      pen_stop(PEN_EXIT_DATA,
               "%s: rank %u, action %u (%.*s): no action such as 3F1, 3SEND_F1 or 3F1|4B0",
               reader->path, rank, reader->count[rank], length < SHOWN_BYTES ? length : SHOWN_BYTES,
               word);
    }
    check_action(reader, rank, &row);
    reader->action[rank] = pen_grow(reader->action[rank], &reader->capacity[rank],
                                    reader->count[rank] + 1, sizeof row);
    reader->action[rank][reader->count[rank]++] = row;
    second = *at == '|';
    reader->action[rank][reader->count[rank] - 1].overlaps = second;
    if (second) at++;
  }
}

void pen_actions_read(const char *path, const struct pen_partition *partition,
                      struct pen_action ***action, uint32_t **count) {
  struct reader reader = {.path = path, .partition = partition};
  reader.action = pen_new(partition->rank_count, sizeof *reader.action);
  reader.count = pen_new(partition->rank_count, sizeof *reader.count);
  reader.capacity = pen_new(partition->rank_count, sizeof *reader.capacity);
  reader.seen = pen_new(partition->rank_count, sizeof *reader.seen);
  FILE *file = fopen(path, "r");
  if (!file) pen_stop(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(errno));
  char *text = NULL;
  size_t capacity = 0;
  ssize_t length;
  while ((length = getline(&text, &capacity, file)) >= 0) {
    reader.line++;
    if (strlen(text) != (size_t)length)
      pen_stop(PEN_EXIT_DATA, "%s:%lu: a zero byte", path, reader.line);
    read_line(&reader, text);
  }
  int failed = ferror(file) ? errno : 0;
  free(text);
  fclose(file);
  if (failed) pen_stop(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(failed));
  for (uint32_t rank = 0; rank < partition->rank_count; rank++)
    if (!reader.seen[rank]) pen_stop(PEN_EXIT_DATA, "%s: rank %u has no line", path, rank);
  *action = reader.action;
  *count = reader.count;
}
