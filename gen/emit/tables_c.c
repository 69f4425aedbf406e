/* emit_tables.c: the plan's tables as C, one designated initialiser a row.
 *
 * Large plans have millions of rows, and what a compiler takes for them is what it takes to read
 * their tokens. So within a row values stand by position, macros are avoided (PEN_NONE is written
 * -1), what an action's kind does not use counts as zero, and zeros at the end of a row or of an
 * array in it are left out. A rank whose ops are those of the rank before has no table of its own
 * for them. */
#include <stdio.h>
#include <inttypes.h>
#include <string.h>

#include "gen/emit/columns.h"
#include "gen/emit/plan_c.h"
#include "gen/model/op_signature.h"
#include "gen/base/arena.h"
#include "gen/schedule/action_text.h"
#include "runtime/plan/plan.h"

static const char *const action_kinds[] = {
#define PEN_ACTION(kind, text, printed, meaning) "PEN_" #kind,
#include "runtime/plan/actions.def"
};

static const char *const bases[] = {
#define PEN_BASE(name, text, meaning) "PEN_BASE_" #name,
#include "runtime/plan/bases.def"
};

static const char *const dtypes[] = {"PEN_F32", "PEN_BF16", "PEN_I32", "PEN_F64"};
static const char *const initials[] = {"PEN_INITIAL_NORMAL", "PEN_INITIAL_ONES",
                                       "PEN_INITIAL_ZEROS"};

/* ---- the line at hand ---- */

enum { LINE_BYTES = 4096, NUMBER_BYTES = 32, ACTION_COLUMNS_MIN = 3 /* kind to microbatch */ };

struct line {
  FILE *out;
  uint32_t *ops_of; /* [rank] whose table of ops it has, in the profile at hand */
  size_t used;
  char text[LINE_BYTES];
};

static void put_bytes(struct line *line, const char *text, size_t bytes) {
  if (line->used + bytes > LINE_BYTES) { /* a name may be of any length */
    fwrite(line->text, 1, line->used, line->out);
    line->used = 0;
    if (bytes > LINE_BYTES) {
      fwrite(text, 1, bytes, line->out);
      return;
    }
  }
  memcpy(line->text + line->used, text, bytes);
  line->used += bytes;
}

static void put(struct line *line, const char *text) { put_bytes(line, text, strlen(text)); }

static void put_number(struct line *line, uint64_t number) {
  char digits[NUMBER_BYTES];
  size_t at = NUMBER_BYTES;
  do digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  put_bytes(line, digits + at, NUMBER_BYTES - at);
}

static void put_signed(struct line *line, int64_t number) {
  if (number < 0) put(line, "-");
  put_number(line, number < 0 ? -(uint64_t)number : (uint64_t)number);
}

static void end_line(struct line *line) {
  put(line, "\n");
  fwrite(line->text, 1, line->used, line->out);
  line->used = 0;
}

/* ---- one row ---- */

static void put_value(struct line *line, const struct pen_column *column, const char *row,
                      size_t index) {
  uint64_t value = pen_column_value(column, row, index);
  char text[NUMBER_BYTES];
  double real;
  switch (column->format) {
    case PEN_AS_SIGNED: put_signed(line, (int64_t)value); break;
    case PEN_AS_INDEX: value == PEN_NONE ? put(line, "-1") : put_number(line, value); break;
    case PEN_AS_OFFSET: value == UINT64_MAX ? put(line, "-1") : put_number(line, value); break;
    case PEN_AS_ACTION: put(line, action_kinds[value]); break;
    case PEN_AS_DTYPE: put(line, dtypes[value]); break;
    case PEN_AS_BASE: put(line, bases[value]); break;
    case PEN_AS_INITIAL: put(line, initials[value]); break;
    case PEN_AS_OP:
      put(line, "PEN_OP_");
      put(line, pen_signature_of((int)value)->kind);
      break;
    case PEN_AS_REAL:
      memcpy(&real, &value, sizeof real);
      snprintf(text, sizeof text, "%.17g", real);
      put(line, text);
      break;
    case PEN_AS_TEXT: /* names are plain words */
      put(line, "\"");
      put(line, *(const char *const *)(row + column->offset));
      put(line, "\"");
      break;
    default: put_number(line, value); break;
  }
}

static void put_array(struct line *line, const struct pen_column *column, const char *row) {
  size_t count = column->count;
  while (count > 1 && pen_column_value(column, row, count - 1) == 0) count--;
  put(line, "{");
  for (size_t index = 0; index < count; index++) {
    if (index) put(line, ", ");
    put_value(line, column, row, index);
  }
  put(line, "}");
}

/* An index that a row's kind does not use is left out like a zero: compute rows have no message,
 * others neither program nor frame. */
static bool is_unused(const struct pen_schema *form, const struct pen_column *column,
                      const char *row) {
  return form == &pen_schemas[PEN_SCHEMA_ACTION] && column->format == PEN_AS_INDEX &&
         pen_column_value(column, row, 0) == PEN_NONE;
}

/* Whether a column is all zeros, as what is left out. */
static bool is_empty(const struct pen_schema *form, const struct pen_column *column,
                     const char *row) {
  if (column->format == PEN_AS_TEXT) return false;
  if (is_unused(form, column, row)) return true;
  for (size_t index = 0; index < (column->count ? column->count : 1); index++)
    if (pen_column_value(column, row, index) != 0) return false;
  return true;
}

/* How many columns of a row are written: the first at least, and of an action those that its
 * comment says. */
static size_t count_columns(const struct pen_schema *form, const char *row) {
  size_t count = form->column_count,
         least = form == &pen_schemas[PEN_SCHEMA_ACTION] ? ACTION_COLUMNS_MIN : 1;
  while (count > least && is_empty(form, &form->column[count - 1], row)) count--;
  return count;
}

static void put_columns(struct line *line, const struct pen_schema *form, const char *row) {
  size_t count = count_columns(form, row);
  for (size_t n = 0; n < count; n++) {
    const struct pen_column *column = &form->column[n];
    if (n) put(line, ", ");
    if (column->count)
      put_array(line, column, row);
    else if (is_unused(form, column, row))
      put(line, "0");
    else
      put_value(line, column, row, 0);
  }
}

/* ---- comments ---- */

static void put_action_text(struct line *line, int kind, uint32_t stage, uint32_t microbatch) {
  char text[32];
  put(line, pen_action_text(text, kind, stage, microbatch));
}

static void comment_action(struct line *line, const void *row) {
  const struct pen_action *action = row;
  put_action_text(line, action->kind, action->stage, action->microbatch);
  if (action->overlaps) put(line, "|");
}

static void comment_message(struct line *line, const void *row) {
  const struct pen_message *message = row;
  put_action_text(line, message->kind, message->stage, message->microbatch);
}

/* The operands by name. */
static void comment_op(struct line *line, const void *row) {
  const struct pen_signature *signature = pen_signature_of(((const struct pen_op *)row)->kind);
  for (uint32_t k = 0; k < signature->operand_count; k++) {
    if (k == signature->input_count) put(line, "-> ");
    put(line, signature->operand[k].name);
    if (k + 1 < signature->operand_count) put(line, " ");
  }
}

static void comment_program(struct line *line, const void *row) {
  const struct pen_program *program = row;
  put(line, action_kinds[program->kind] + strlen("PEN_"));
  put(line, " of stage ");
  put_number(line, program->stage);
  if (program->recompute_op_count) put(line, ", begins with F again");
}

static void (*const comments[PEN_SCHEMAS])(struct line *line, const void *row) = {
    [PEN_SCHEMA_ACTION] = comment_action,
    [PEN_SCHEMA_MESSAGE] = comment_message,
    [PEN_SCHEMA_OP] = comment_op,
    [PEN_SCHEMA_PROGRAM] = comment_program,
};

/* ---- tables ---- */

/* What each kind of table is called behind its profile, and its rank if it has one. */
static const char *const names[PEN_SCHEMAS] = {
    [PEN_SCHEMA_ACTION] = "actions",
    [PEN_SCHEMA_PROGRAM] = "programs",
    [PEN_SCHEMA_OP] = "ops",
    [PEN_SCHEMA_TENSOR] = "tensors",
    [PEN_SCHEMA_FRAME] = "frames",
    [PEN_SCHEMA_STAGE] = "stages",
    [PEN_SCHEMA_MESSAGE] = "messages",
    [PEN_SCHEMA_CHANNEL] = "channels",
    [PEN_SCHEMA_WEIGHT] = "weights",
    [PEN_SCHEMA_TIE] = "ties",
    [PEN_SCHEMA_MEMORY] = "memory",
    [PEN_SCHEMA_RANK_PROGRAM] = "ranks",
    [PEN_SCHEMA_STAGED_INPUT] = "feeds",
};

static bool are_ops_alike(const struct pen_rank_program *a, const struct pen_rank_program *b) {
  if (a->op_count != b->op_count) return false;
  const struct pen_schema *form = &pen_schemas[PEN_SCHEMA_OP];
  for (uint32_t op = 0; op < a->op_count; op++)
    for (const struct pen_column *column = form->column; column < form->column + form->column_count;
         column++)
      for (size_t index = 0; index < (column->count ? column->count : 1); index++)
        if (pen_column_value(column, &a->ops[op], index) !=
            pen_column_value(column, &b->ops[op], index))
          return false;
  return true;
}

/* Whether a rank has the ops of the one before. Notes whose they are. */
static bool shares_ops(struct line *line, const struct pen_table *table) {
  const struct pen_rank_program *own = &table->profile->ranks[table->rank];
  bool shares = table->rank > 0 && are_ops_alike(own - 1, own);
  line->ops_of[table->rank] = shares ? line->ops_of[table->rank - 1] : table->rank;
  return shares;
}

/* A rank's own tables, named in the table of ranks. */
static void put_pointers(struct line *line, const struct pen_profile *profile, uint32_t rank) {
  for (int form = PEN_SCHEMA_ACTION; form <= PEN_SCHEMA_FRAME; form++) {
    put(line, profile->name);
    put(line, "_rank");
    put_number(line, form == PEN_SCHEMA_OP ? line->ops_of[rank] : rank);
    put(line, "_");
    put(line, names[form]);
    put(line, ", ");
  }
}

static void write_head(FILE *out, const struct pen_table *table) {
  ptrdiff_t form = table->form - pen_schemas;
  if (form == PEN_SCHEMA_WEIGHT) fputs("/* ======== weights, in model order ======== */\n", out);
  if (form == PEN_SCHEMA_TIE)
    fputs("\n/* ======== a matrix that head and embedding share ======== */\n", out);
  if (form == PEN_SCHEMA_STAGE)
    fprintf(out, "\n/* ======== profile %s ======== */\n", table->profile->name);
  if (form == PEN_SCHEMA_ACTION) fprintf(out, "\n/* -- rank %" PRIu32 " -- */\n", table->rank);
  fprintf(out, "\nstatic const struct %s ", table->form->type);
  if (table->profile) fprintf(out, "%s_", table->profile->name);
  if (table->rank != PEN_NONE) fprintf(out, "rank%" PRIu32 "_", table->rank);
  fprintf(out, "%s[] = {\n", names[form]);
}

static void write_table(const struct pen_table *table, void *context) {
  struct line *line = context;
  ptrdiff_t form = table->form - pen_schemas;
  if (form == PEN_SCHEMA_OP && shares_ops(line, table)) return;
  write_head(line->out, table);
  for (size_t index = 0; index < table->count; index++) {
    const char *row = (const char *)table->rows + index * table->form->row_bytes;
    put(line, "  [");
    put_number(line, index);
    put(line, "] = {");
    if (form == PEN_SCHEMA_RANK_PROGRAM) put_pointers(line, table->profile, (uint32_t)index);
    put_columns(line, table->form, row);
    put(line, "},");
    if (comments[form]) {
      put(line, " /* ");
      comments[form](line, row);
      put(line, " */");
    }
    end_line(line);
  }
  fputs(table->count ? "};\n" : "  [0] = {0}, /* none */\n};\n", line->out);
}

void pen_emit_tables(FILE *out, const struct pen_plan *plan) {
  struct line *line = pen_new(1, sizeof *line);
  line->out = out;
  line->ops_of = pen_new(plan->rank_count, sizeof *line->ops_of);
  pen_tables_each(plan, write_table, line);
}
