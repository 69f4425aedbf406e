/* action_text.c: reads and writes orders as text: one line per rank, `RANK: ACTION ACTION ...`. An
 * action is <stage><kind><microbatch>, and `a|b` is a pair: a overlaps b. The reader skips empty
 * lines and lines that begin with '#'; each rank has one line, in any order. */
#include "gen/schedule/action_text.h"
#include "base/file_kinds.h"
#include "base/input_file.h"
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

const char *pen_action_format(char text[32], int kind, uint32_t stage, uint32_t microbatch) {
  if (!pen_kind_has_stage(kind))
    snprintf(text, 32, "%s", kinds[kind].text);
  else if (!pen_kind_has_microbatch(kind))
    snprintf(text, 32, "%u%s", stage, kinds[kind].text);
  else
    snprintf(text, 32, "%u%s%u", stage, kinds[kind].text, microbatch);
  return text;
}

void pen_actions_print(FILE *file, const struct pen_rank_program *ranks, uint32_t rank_count) {
  char text[32];
  for (uint32_t rank = 0; rank < rank_count; rank++) {
    fprintf(file, "%u:", rank);
    for (uint32_t index = 0; index < ranks[rank].action_count; index++) {
      const struct pen_action *a = &ranks[rank].actions[index];
      bool second = index > 0 && a[-1].overlaps;
      if (kinds[a->kind].printed)
        fprintf(file, "%c%s", second ? '|' : ' ',
                pen_action_format(text, a->kind, a->stage, a->microbatch));
    }
    fputc('\n', file);
  }
}

/* ---- the reader ---- */

struct action_reader {
  const char *path;
  const struct pen_partition *partition;
  struct pen_action **action;
  uint32_t *count;
  bool *seen;
  unsigned long line;
};

enum { SHOWN_BYTES = 40 }; /* the most of a wrong word that a message shows */

/* Reads an unsigned number; false if there is none or it exceeds 32 bits. */
static bool read_number(const char **at, uint32_t *number) {
  uint64_t value = 0;
  if (!isdigit((unsigned char)**at)) return false;
  for (; isdigit((unsigned char)**at); (*at)++)
    if ((value = value * 10 + (uint64_t)(**at - '0')) >= PEN_NONE) return false;
  *number = (uint32_t)value;
  return true;
}

/* The kind whose text fills [at, end), or -1. */
static int kind_of_text(const char *at, size_t length) {
  for (int kind = 0; kind < PEN_ACTION_KINDS; kind++)
    if (kinds[kind].printed && strlen(kinds[kind].text) == length &&
        memcmp(kinds[kind].text, at, length) == 0)
      return kind;
  return -1;
}

bool pen_action_parse(const char **at, struct pen_action *action) {
  uint32_t stage, microbatch;
  if (!read_number(at, &stage)) return false;
  size_t length = 0;
  while (isalpha((unsigned char)(*at)[length]) || (*at)[length] == '_') length++;
  int kind = kind_of_text(*at, length);
  *at += length;
  if (kind < 0 || !read_number(at, &microbatch)) return false;
  if (**at && **at != '|' && !isspace((unsigned char)**at)) return false;
  *action = (struct pen_action){
      .kind = (uint8_t)kind, .stage = (uint16_t)stage, .microbatch = microbatch};
  return stage <= UINT16_MAX;
}

/* Fails unless the microbatch exists and the stage is on the line's rank. */
static void check_read_action(const struct action_reader *reader, uint32_t rank,
                              const struct pen_action *a) {
  const struct pen_partition *partition = reader->partition;
  char text[32];
  pen_action_format(text, a->kind, a->stage, a->microbatch);
  if (a->stage >= partition->stage_count)
    pen_stop(PEN_EXIT_DATA,
             "%s: rank %u, action %u (%s): there is no stage %u, the topology has %u", reader->path,
             rank, reader->count[rank], text, a->stage, partition->stage_count);
  if (partition->rank_of[a->stage] != rank)
    pen_stop(PEN_EXIT_DATA, "%s: rank %u, action %u (%s): stage %u is on rank %u", reader->path,
             rank, reader->count[rank], text, a->stage, partition->rank_of[a->stage]);
  if (a->microbatch >= partition->microbatch_count)
    pen_stop(PEN_EXIT_DATA,
             "%s: rank %u, action %u (%s): there is no microbatch %u, the topology has %u",
             reader->path, rank, reader->count[rank], text, a->microbatch,
             partition->microbatch_count);
}

/* Reads `RANK:`; returns the rank. */
static uint32_t read_rank(struct action_reader *reader, const char **at) {
  const char *word = *at;
  uint32_t rank;
  if (!read_number(at, &rank) || **at != ':')
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

static void read_rank_line(struct action_reader *reader, const char *at) {
  at = skip_space(at);
  if (*at == 0 || *at == '#') return;
  uint32_t rank = read_rank(reader, &at);
  bool second = false; /* an action must follow '|' without a space */
  for (at = skip_space(at); *at || second; at = second ? at : skip_space(at)) {
    const char *word = at;
    struct pen_action a;
    if (!pen_action_parse(&at, &a)) {
      int length = (int)strcspn(word, " \t\r\n");
      pen_stop(PEN_EXIT_DATA,
               "%s: rank %u, action %u (%.*s): no action such as 3F1, 3SEND_F1 or 3F1|4B0",
               reader->path, rank, reader->count[rank], length < SHOWN_BYTES ? length : SHOWN_BYTES,
               word);
    }
    check_read_action(reader, rank, &a);
    PEN_RESERVE(reader->action[rank], reader->count[rank] + 1);
    reader->action[rank][reader->count[rank]++] = a;
    second = *at == '|';
    reader->action[rank][reader->count[rank] - 1].overlaps = second;
    if (second) at++;
  }
}

void pen_actions_read(const char *path, const struct pen_partition *partition,
                      struct pen_action ***action, uint32_t **count) {
  struct action_reader reader = {.path = path, .partition = partition};
  reader.action = pen_new(partition->rank_count, sizeof *reader.action);
  reader.count = pen_new(partition->rank_count, sizeof *reader.count);
  reader.seen = pen_new(partition->rank_count, sizeof *reader.seen);
  struct pen_input_error error;
  uint64_t bytes;
  const int descriptor = pen_input_open(path, PEN_INPUT_ACTIONS, &bytes, &error);
  if (descriptor < 0) pen_stop(error.status, "%s: %s", path, error.text);
  FILE *file = fdopen(descriptor, "r");
  if (!file) pen_stop(PEN_EXIT_NO_INPUT, "%s: %s", path, strerror(errno));
  char *text = NULL;
  size_t capacity = 0;
  ssize_t length;
  while ((length = getline(&text, &capacity, file)) >= 0) {
    reader.line++;
    if (strlen(text) != (size_t)length)
      pen_stop(PEN_EXIT_DATA, "%s:%lu: a zero byte", path, reader.line);
    read_rank_line(&reader, reader.line == 1 ? text + pen_mark_bytes(text, (size_t)length) : text);
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
