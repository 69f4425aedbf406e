/* source.c: reads a topology file and its includes into one text for libconfig, and stores every
 * value as written.
 *
 * libconfig 1.5 checks the grammar but does not keep the values as written. The scanner recognises
 * values and names only: a word is a value after `=` or `:`, and directly within [ ] or ( ).
 */
#include "gen/topology/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_kinds.h"
#include "gen/base/arena.h"
#include "gen/topology/literal.h"
#include "gen/base/error.h"

enum { INCLUDE_DEPTH_MAX = 16, INCLUDES_MAX = 1000, NESTING_MAX = 64, SOURCE_BYTES_MAX = 1 << 20 };
/* libconfig compares each name with those before it in its group. */
enum { NAMES_MAX = 1000, ALL_NAMES_MAX = 10000 };
#define NOTHING SIZE_MAX

/* A file that is being scanned, and the file that includes it. */
struct scanned_file {
  const char *path, *at, *start, *end;
  size_t file, line, visit, depth;
  struct stat status;
  const struct scanned_file *outer;
};

/* Text that grows at its end. */
struct growing {
  char *text;
  size_t bytes;
};

struct scanner {
  struct pen_source *source;
  struct sha256_ctx *hash;
  size_t visits, total_bytes;
  struct open_bracket {
    char bracket;
    size_t written; /* whose value this is, or NOTHING */
    size_t visit;
    const char *start;
    size_t number; /* of brackets before it */
    size_t names;  /* directly within it */
  } open[NESTING_MAX];
  size_t open_count, bracket_count, top_names;
  bool expects_value; /* the last token was `=` or `:` */
  size_t name;        /* index in `written` of the last name without a value yet, or NOTHING */
  bool after_string;  /* a string that follows is appended to the last one */
  size_t string_name; /* index in `written` of its name, or NOTHING */
  struct growing joined_text, joined_string; /* of strings that are one */
};

/* ---- messages ---- */

static const char *line_prefix(const struct scanned_file *reading) {
  return pen_text("%s:%zu: ", reading->path, reading->line);
}

const char *pen_source_where(const struct pen_source *source, size_t line) {
  size_t index = line < 1 ? 0 : line > source->line_count ? source->line_count - 1 : line - 1;
  return pen_text("%s:%zu: ", source->file[source->line[index].file], source->line[index].line);
}

const struct pen_written *pen_source_find(const struct pen_source *source, size_t depth,
                                          const char *group, const char *name) {
  for (size_t i = source->written_count; i-- > 0;) {
    const struct pen_written *written = &source->written[i];
    if (written->depth == depth && !strcmp(written->name, name) && !strcmp(written->group, group))
      return written;
  }
  return NULL;
}

const struct pen_written *pen_source_find_after(const struct pen_source *source, size_t depth,
                                                const char *group, const char *name,
                                                size_t before) {
  for (size_t i = 0; i < source->written_count; i++) {
    const struct pen_written *written = &source->written[i];
    if (written->depth == depth && !strcmp(written->name, name) && !strcmp(written->group, group) &&
        before-- == 0)
      return written;
  }
  return NULL;
}

/* ---- output ---- */

static void append_text(struct scanner *scanner, const char *text, size_t bytes) {
  struct pen_source *source = scanner->source;
  PEN_RESERVE(source->text, source->bytes + bytes + 1);
  memcpy(source->text + source->bytes, text, bytes);
  source->bytes += bytes;
  source->text[source->bytes] = 0;
}

static void begin_line(struct scanner *scanner, const struct scanned_file *reading) {
  struct pen_source *source = scanner->source;
  if (source->line_count) append_text(scanner, "\n", 1);
  PEN_RESERVE(source->line, source->line_count + 1);
  source->line[source->line_count++] = (struct pen_line){reading->file, reading->line};
}

static void append_literal(struct scanner *scanner, const char *text, const char *string) {
  struct pen_source *source = scanner->source;
  PEN_RESERVE(source->literal, source->literal_count + 1);
  const char *index = pen_text(" %zu ", source->literal_count);
  append_text(scanner, index, strlen(index));
  source->literal[source->literal_count++] = (struct pen_literal){text, string};
}

static void set_value(struct scanner *scanner, size_t written, const char *text, size_t bytes) {
  if (written != NOTHING) scanner->source->written[written].value = pen_literal_shown(text, bytes);
}

/* ---- tokens ---- */

static bool within_list(const struct scanner *scanner) {
  return scanner->open_count && scanner->open[scanner->open_count - 1].bracket != '{';
}

static bool is_comment(const char *at, const char *end) {
  return *at == '#' || (*at == '/' && end - at > 1 && (at[1] == '/' || at[1] == '*'));
}

static bool ends_word(const char *at, const char *end) {
  return strchr(" \t\r\n\f\v;,(){}[]=:\"", *at) || is_comment(at, end);
}

static void next_line(struct scanner *scanner, struct scanned_file *reading) {
  reading->line++;
  begin_line(scanner, reading);
}

static void scan_comment(struct scanner *scanner, struct scanned_file *reading) {
  const char *opened = line_prefix(reading);
  bool block = *reading->at == '/' && reading->at[1] == '*';
  append_text(scanner, " ", 1);
  for (reading->at += block ? 2 : 1; reading->at < reading->end; reading->at++) {
    if (*reading->at == '\n') {
      if (!block) return;
      next_line(scanner, reading);
    } else if (block && *reading->at == '*' && reading->end - reading->at > 1 &&
               reading->at[1] == '/') {
      reading->at += 2;
      return;
    }
  }
  if (block) pen_stop(PEN_EXIT_TOPOLOGY, "%sa comment is not closed", opened);
}

static void count_name(struct scanner *scanner, const struct scanned_file *reading,
                       const char *name, size_t bytes) {
  size_t innermost = scanner->open_count;
  size_t *names = innermost ? &scanner->open[innermost - 1].names : &scanner->top_names;
  if (++*names > NAMES_MAX || scanner->source->written_count == ALL_NAMES_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY, "%s%s: at most %d names in a group, and %d in a topology",
             line_prefix(reading), pen_literal_shown(name, bytes), NAMES_MAX, ALL_NAMES_MAX);
}

/* The name of a setting or group, if the file is correct; libconfig checks that. */
static void scan_name(struct scanner *scanner, struct scanned_file *reading, const char *name,
                      size_t bytes) {
  struct pen_source *source = scanner->source;
  size_t depth = 0, enclosing = 0;
  const char *group = "";
  for (size_t i = 0; i < scanner->open_count; i++) {
    if (scanner->open[i].bracket != '{') continue;
    depth++;
    enclosing = scanner->open[i].number;
    group =
        scanner->open[i].written == NOTHING ? "" : source->written[scanner->open[i].written].name;
  }
  count_name(scanner, reading, name, bytes);
  append_text(scanner, name, bytes);
  PEN_RESERVE(source->written, source->written_count + 1);
  scanner->name = source->written_count++;
  source->written[scanner->name] = (struct pen_written){.group = group,
                                                        .name = pen_text("%.*s", (int)bytes, name),
                                                        .depth = depth,
                                                        .enclosing = enclosing,
                                                        .file = reading->file,
                                                        .line = reading->line,
                                                        .value = "..."};
}

static void scan_include(struct scanner *scanner, struct scanned_file *reading);

static void scan_word(struct scanner *scanner, struct scanned_file *reading) {
  const char *start = reading->at, *at = start;
  while (at < reading->end && !ends_word(at, reading->end)) at++;
  size_t bytes = (size_t)(at - start);
  if (bytes == strlen("@include") && !memcmp(start, "@include", bytes)) {
    scan_include(scanner, reading);
    return;
  }
  reading->at = at;
  scanner->after_string = false;
  if (!scanner->expects_value && !within_list(scanner)) {
    scan_name(scanner, reading, start, bytes);
    return;
  }
  append_literal(scanner, pen_text("%.*s", (int)bytes, start), NULL);
  if (scanner->expects_value) set_value(scanner, scanner->name, start, bytes);
  scanner->expects_value = false;
}

static const char *grow_by(struct growing *g, const char *before, const char *text) {
  const size_t more = strlen(before) + strlen(text);
  PEN_RESERVE(g->text, g->bytes + more + 1);
  strcat(strcpy(g->text + g->bytes, before), text);
  g->bytes += more;
  return g->text;
}

/* Appends to the last string: "a" "b" is "ab". */
static void join_string(struct scanner *scanner, const char *text, const char *string) {
  struct pen_literal *last = &scanner->source->literal[scanner->source->literal_count - 1];
  if (!scanner->joined_text.text) {
    grow_by(&scanner->joined_text, "", last->text);
    grow_by(&scanner->joined_string, "", last->string);
  }
  last->text = grow_by(&scanner->joined_text, " ", text);
  last->string = grow_by(&scanner->joined_string, "", string);
  set_value(scanner, scanner->string_name, last->text, scanner->joined_text.bytes);
}

static void scan_string(struct scanner *scanner, struct scanned_file *reading) {
  const char *start = reading->at, *string = "";
  reading->at = pen_literal_string(start + 1, reading->end, &string);
  if (!reading->at) {
    const char *line_end = memchr(start, '\n', (size_t)(reading->end - start));
    const char *shown =
        pen_literal_shown(start, (size_t)((line_end ? line_end : reading->end) - start));
    pen_stop(PEN_EXIT_TOPOLOGY, "%s%s: a string must end on its line", line_prefix(reading), shown);
  }
  const char *text = pen_text("%.*s", (int)(reading->at - start), start);
  if (scanner->after_string) {
    join_string(scanner, text, string);
    return;
  }
  if (!scanner->expects_value && !within_list(scanner)) {
    append_text(scanner, "?", 1); /* no string is allowed here: libconfig reports it */
    return;
  }
  append_literal(scanner, text, string);
  scanner->string_name = scanner->expects_value ? scanner->name : NOTHING;
  set_value(scanner, scanner->string_name, text, strlen(text));
  scanner->after_string = true;
  scanner->joined_text = scanner->joined_string = (struct growing){0};
  scanner->expects_value = false;
}

static void scan_bracket(struct scanner *scanner, struct scanned_file *reading) {
  const char *at = reading->at++;
  if (strchr("([{", *at)) {
    if (scanner->open_count == NESTING_MAX)
      pen_stop(PEN_EXIT_TOPOLOGY, "%s%c: at most %d groups and lists within each other",
               line_prefix(reading), *at, NESTING_MAX);
    size_t written = scanner->expects_value ? scanner->name : NOTHING;
    scanner->open[scanner->open_count++] =
        (struct open_bracket){*at, written, reading->visit, at, ++scanner->bracket_count, 0};
  } else if (strchr(")]}", *at) && scanner->open_count) {
    const struct open_bracket *open = &scanner->open[--scanner->open_count];
    if (open->visit == reading->visit)
      set_value(scanner, open->written, open->start, (size_t)(at + 1 - open->start));
  }
  append_text(scanner, at, 1);
  scanner->after_string = false;
  scanner->expects_value = *at == '=' || *at == ':';
}

static void scan_text(struct scanner *scanner, struct scanned_file *reading) {
  begin_line(scanner, reading);
  while (reading->at < reading->end) {
    char c = *reading->at;
    if (c == '\n') {
      reading->at++;
      next_line(scanner, reading);
    } else if (strchr(" \t\r\f\v", c)) {
      reading->at++;
      append_text(scanner, " ", 1);
    } else if (is_comment(reading->at, reading->end)) {
      scan_comment(scanner, reading);
    } else if (c == '"') {
      scan_string(scanner, reading);
    } else if (ends_word(reading->at, reading->end)) {
      scan_bracket(scanner, reading);
    } else {
      scan_word(scanner, reading);
    }
  }
}

/* ---- files ---- */

static size_t file_index(struct pen_source *source, const char *path) {
  for (size_t i = 0; i < source->file_count; i++) {
    if (!strcmp(source->file[i], path)) return i;
  }
  PEN_RESERVE(source->file, source->file_count + 1);
  source->file[source->file_count] = path;
  return source->file_count++;
}

/* Reads an open file completely; false, with errno: it cannot be read. */
static bool read_all(int descriptor, struct scanned_file *reading, size_t limit) {
  char *text = NULL;
  size_t bytes = 0;
  for (;;) {
    PEN_RESERVE(text, bytes + 4096);
    ssize_t got = read(descriptor, text + bytes, pen_array_bytes(text) - bytes);
    if (got < 0) return false;
    if (got == 0) break;
    bytes += (size_t)got;
    if (bytes > limit)
      pen_stop(PEN_EXIT_TOPOLOGY, "%s: a topology and its includes have at most %d bytes",
               reading->path, SOURCE_BYTES_MAX);
  }
  reading->start = reading->at = text;
  reading->end = text + bytes;
  return true;
}

static bool is_same(const struct stat *one, const struct stat *other) {
  return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

static bool open_and_read(struct scanner *scanner, struct scanned_file *reading) {
  int descriptor = open(reading->path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  bool done = fstat(descriptor, &reading->status) == 0 &&
              read_all(descriptor, reading, SOURCE_BYTES_MAX - scanner->total_bytes);
  int error = errno;
  close(descriptor);
  errno = error;
  return done;
}

/* Scans one file. An error message begins with `why`. */
static void scan_file(struct scanner *scanner, const char *path, const struct scanned_file *outer,
                      const char *why) {
  struct scanned_file reading = {
      .path = path, .line = 1, .outer = outer, .depth = outer ? outer->depth + 1 : 0};
  if (!open_and_read(scanner, &reading)) pen_stop(PEN_EXIT_NO_INPUT, "%s%s", why, strerror(errno));
  for (const struct scanned_file *around = outer; around; around = around->outer) {
    if (is_same(&around->status, &reading.status))
      pen_stop(PEN_EXIT_TOPOLOGY, "%sa file must not include itself", why);
  }
  uint64_t bytes = (uint64_t)(reading.end - reading.start);
  scanner->total_bytes += bytes;
  sha256_update(scanner->hash, bytes, (const uint8_t *)reading.start);
  reading.at = reading.start += pen_mark_bytes(reading.start, bytes);
  reading.file = file_index(scanner->source, path);
  reading.visit = scanner->visits++;
  const char *zero = memchr(reading.start, 0, (size_t)(reading.end - reading.start));
  for (const char *at = reading.start; zero && at < zero; at++) reading.line += *at == '\n';
  if (zero)
    pen_stop(PEN_EXIT_TOPOLOGY, "%sa byte of value 0: a topology file is text",
             line_prefix(&reading));
  scan_text(scanner, &reading);
}

static bool begins_line(const struct scanned_file *reading) {
  for (const char *at = reading->at; at > reading->start && at[-1] != '\n'; at--) {
    if (at[-1] != ' ' && at[-1] != '\t') return false;
  }
  return true;
}

/* `@include "NAME"`, at the start of a line; NAME is relative to the folder of the including file.
 */
static void scan_include(struct scanner *scanner, struct scanned_file *reading) {
  const char *name = "", *at = reading->at + strlen("@include");
  while (at < reading->end && (*at == ' ' || *at == '\t')) at++;
  const char *after =
      at < reading->end && *at == '"' ? pen_literal_string(at + 1, reading->end, &name) : NULL;
  if (!begins_line(reading) || !after || !*name)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s@include: must be at the start of a line, before a file name in quotes",
             line_prefix(reading));
  const char *slash = strrchr(reading->path, '/');
  int folder = slash && *name != '/' ? (int)(slash + 1 - reading->path) : 0;
  const char *why =
      pen_text("%s@include \"%s\": ", line_prefix(reading), pen_literal_shown(name, strlen(name)));
  if (reading->depth == INCLUDE_DEPTH_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY, "%sat most %d includes within each other", why, INCLUDE_DEPTH_MAX);
  if (scanner->visits > INCLUDES_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY, "%sat most %d includes", why, INCLUDES_MAX);
  scan_file(scanner, pen_text("%.*s%s", folder, reading->path, name), reading, why);
  reading->at = after;
  begin_line(scanner, reading);
}

struct pen_source *pen_source_read(const char *path, struct sha256_ctx *hash) {
  struct scanner scanner = {
      .source = pen_new(1, sizeof *scanner.source), .hash = hash, .name = NOTHING};
  append_text(&scanner, "", 0); /* an empty file is an empty text */
  scan_file(&scanner, path, NULL, pen_text("%s: ", path));
  return scanner.source;
}
