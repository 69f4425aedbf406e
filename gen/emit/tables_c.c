/* tables_c.c: the plan's tables as C.
 *
 * Large plans have millions of actions, and a compiler's time grows with the tokens that it reads.
 * So the rows of long tables list values in the order of the columns (their index is in a comment),
 * PEN_NONE is written -1, and zeros at the end of a row or an array are not written. A rank whose
 * ops equal those of the rank before uses its table. */
#include <stdio.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/emit/internal.h"
#include "gen/model/op_signature.h"
#include "gen/schedule/action_text.h"

#define OP_TEXT(kind, dims, reals, signature, flops, meaning) "PEN_OP_" #kind,
#define PEN_OP OP_TEXT
#define PEN_DATA_OP OP_TEXT
#define PEN_RUNTIME_OP OP_TEXT
static const char *const op_text[] = {
#include "kernels/ops.def"
};
static const char *const action_text[] = {
#define PEN_ACTION(kind, text, printed, meaning) "PEN_" #kind,
#include "runtime/plan/actions.def"
};
static const char *const base_text[] = {
#define PEN_BASE(name, text, meaning) "PEN_BASE_" #name,
#include "runtime/plan/bases.def"
};
static const char *const profile_text[] = {
#define PEN_PROFILE_KIND(name, meaning) "PEN_" #name,
#include "runtime/plan/profiles.def"
};
static const char *const optimizer_text[] = {
#define PEN_OPTIMIZER(name, ...) "PEN_OPTIMIZER_" #name,
#include "runtime/plan/optimizer.def"
};
static const char *const decay_text[] = {
#define PEN_DECAY(name, text, meaning) "PEN_DECAY_" #name,
#include "runtime/plan/optimizer.def"
};
static const char *const norm_text[] = {
#define PEN_NORM_KIND(name, text, meaning) "PEN_NORM_" #name,
#include "runtime/plan/optimizer.def"
};
static const char *const recompute_text[] = {
#define PEN_RECOMPUTE_KIND(name, text, meaning) "PEN_RECOMPUTE_" #name,
#include "runtime/plan/recompute.def"
};
static const char *const input_dtype_text[] = {
#define PEN_INPUT_DTYPE(name, ...) "PEN_INPUT_" #name,
#include "runtime/plan/inputs.def"
};
static const char *const share_text[] = {
#define PEN_SHARE(name, ...) "PEN_SHARE_" #name,
#include "runtime/plan/shares.def"
};
static const char *const dtype_text[] = {"PEN_F32", "PEN_BF16", "PEN_I32", "PEN_F64",
                                         "PEN_BF16_PARTIAL"};
static const char *const initial_text[] = {"PEN_INITIAL_NORMAL", "PEN_INITIAL_ONES",
                                           "PEN_INITIAL_ZEROS", "PEN_INITIAL_CONSTANT",
                                           "PEN_INITIAL_GIVEN"};
static const char *const sharding_text[] = {
#define PEN_SHARDING(name, text, meaning) "PEN_SHARD_" #name,
#include "runtime/plan/choices.def"
};
static const char *const bind_text[] = {
#define PEN_BIND(name, text, meaning) "PEN_BIND_" #name,
#include "runtime/plan/choices.def"
    "PEN_BIND_LIST"};
static const char *const device_text[] = {
#define PEN_DEVICE(name, text, on_host, meaning) "PEN_DEVICE_" #name,
#include "runtime/plan/transports.def"
};
static const char *const group_text[] = {
#define PEN_GROUP(name, ...) "PEN_" #name,
#include "runtime/plan/groups.def"
};
static const char *const put_text[] = {
#define PEN_PUT_KIND(name, ...) "PEN_PUT_" #name,
#include "runtime/plan/puts.def"
};
static const char *const transport_text[] = {
#define PEN_TRANSPORT(name, ...) "PEN_TRANSPORT_" #name,
#include "runtime/plan/transports.def"
};
static const char *const backward_order_text[] = {"PEN_BACKWARDS_RISING", "PEN_BACKWARDS_FALLING",
                                                  "PEN_BACKWARDS_GIVEN"};

static const char *const step_text[] = {
#define PEN_STEP(kind, ...) "PEN_STEP_" #kind,
#include "kernels/steps.def"
};

/* The names of the enumerators, for columns that are written by name. */
static const char *const *const enumerators[PEN_FORMATS] = {
    [PEN_AS_ACTION] = action_text,       [PEN_AS_OP] = op_text,
    [PEN_AS_DTYPE] = dtype_text,         [PEN_AS_BASE] = base_text,
    [PEN_AS_GROUP] = group_text,         [PEN_AS_PUT] = put_text,
    [PEN_AS_INITIAL] = initial_text,     [PEN_AS_PROFILE] = profile_text,
    [PEN_AS_SHARDING] = sharding_text,   [PEN_AS_OPTIMIZER] = optimizer_text,
    [PEN_AS_DECAY] = decay_text,         [PEN_AS_NORM] = norm_text,
    [PEN_AS_RECOMPUTE] = recompute_text, [PEN_AS_BACKWARD_ORDER] = backward_order_text,
    [PEN_AS_DEVICE] = device_text,       [PEN_AS_TRANSPORT] = transport_text,
    [PEN_AS_BIND] = bind_text,           [PEN_AS_INPUT_DTYPE] = input_dtype_text,
    [PEN_AS_STEP] = step_text,           [PEN_AS_SHARE] = share_text,
};

/* ---- rows ---- */

static void write_signed(struct pen_c_writer *writer, int64_t number) {
  if (number < 0) pen_write_text(writer, "-");
  pen_write_number(writer, number < 0 ? -(uint64_t)number : (uint64_t)number);
}

/* Reals have 17 digits, which give an f64 back exactly (IEEE 754-2019, section 5.12.2). */
static void write_real(struct pen_c_writer *writer, uint64_t bits) {
  char text[32];
  double real;
  memcpy(&real, &bits, sizeof real);
  snprintf(text, sizeof text, "%.17g", real);
  pen_write_text(writer, text);
}

static void write_column_value(struct pen_c_writer *writer, const struct pen_column *column,
                               const void *row, size_t index) {
  uint64_t value = pen_column_value(column, row, index);
  if (enumerators[column->format])
    pen_write_text(writer, enumerators[column->format][value]);
  else if (column->format == PEN_AS_TEXT)
    pen_write_string(writer, pen_column_text(column, row));
  else if (column->format == PEN_AS_REAL)
    write_real(writer, value);
  else if (column->format == PEN_AS_SIGNED)
    write_signed(writer, (int64_t)value);
  else if ((column->format == PEN_AS_INDEX && value == PEN_NONE) ||
           (column->format == PEN_AS_OFFSET && value == UINT64_MAX))
    pen_write_text(writer, "-1");
  else
    pen_write_number(writer, value);
}

static void write_column(struct pen_c_writer *writer, const struct pen_column *column,
                         const void *row) {
  if (!column->count) {
    write_column_value(writer, column, row, 0);
    return;
  }
  size_t count = column->count;
  while (count > 1 && pen_column_value(column, row, count - 1) == 0) count--;
  pen_write_text(writer, "{");
  for (size_t index = 0; index < count; index++) {
    if (index) pen_write_text(writer, ", ");
    write_column_value(writer, column, row, index);
  }
  pen_write_text(writer, "}");
}

/* Does the column have the value of a field that is not written? */
static bool is_zero(const struct pen_column *column, const void *row) {
  if (column->format == PEN_AS_TEXT) return false;
  for (size_t index = 0; index < pen_column_values(column); index++)
    if (pen_column_value(column, row, index) != 0) return false;
  return true;
}

/* Indices, counts and enumerators are written even if they are 0, for the reader. */
static bool is_left_out(const struct pen_column *column, const void *row) {
  bool is_count =
      column->format == PEN_AS_NUMBER && !column->count && column->bytes <= sizeof(uint32_t);
  return !is_count && column->format != PEN_AS_INDEX && !enumerators[column->format] &&
         is_zero(column, row);
}

void pen_write_fields(struct pen_c_writer *writer, const struct pen_schema *schema,
                      const void *row) {
  enum { FIELD_STARTS_MAX = 84 };
  for (size_t n = 0; n < schema->column_count; n++) {
    const struct pen_column *column = &schema->column[n];
    if (n && is_left_out(column, row)) continue;
    if (n) pen_write_text(writer, ",");
    if (n && writer->line_used > FIELD_STARTS_MAX) {
      pen_write_line_end(writer);
      pen_write_text(writer, "   ");
    }
    pen_write_text(writer, n ? " ." : ".");
    pen_write_text(writer, column->name);
    pen_write_text(writer, " = ");
    write_column(writer, column, row);
  }
}

/* Values in the order of the columns: at least kind, stage and microbatch of an action. */
static void write_ordered(struct pen_c_writer *writer, const struct pen_schema *schema,
                          const void *row) {
  enum { ACTION_COLUMNS_MIN = 3 };
  size_t count = schema->column_count,
         least = schema == &pen_schemas[PEN_SCHEMA_ACTION] ? ACTION_COLUMNS_MIN : 1;
  while (count > least && is_zero(&schema->column[count - 1], row)) count--;
  for (size_t n = 0; n < count; n++) {
    if (n) pen_write_text(writer, ", ");
    write_column(writer, &schema->column[n], row);
  }
}

/* ---- comments ---- */

static void write_action_text(struct pen_c_writer *writer, int kind, uint32_t stage,
                              uint32_t microbatch) {
  char text[32];
  pen_write_text(writer, pen_action_format(text, kind, stage, microbatch));
}

static void comment_action(struct pen_c_writer *writer, const void *row) {
  const struct pen_action *action = row;
  write_action_text(writer, action->kind, action->stage, action->microbatch);
  if (action->overlaps) pen_write_text(writer, "|");
}

static void comment_message(struct pen_c_writer *writer, const void *row) {
  const struct pen_message *message = row;
  write_action_text(writer, message->kind, message->stage, message->microbatch);
}

/* The operands by name. */
static void comment_op(struct pen_c_writer *writer, const void *row) {
  const struct pen_signature *signature = pen_signature_of(((const struct pen_op *)row)->kind);
  for (uint32_t k = 0; k < signature->operand_count; k++) {
    if (k == signature->input_count) pen_write_text(writer, "-> ");
    pen_write_text(writer, signature->operand[k].name);
    if (k + 1 < signature->operand_count) pen_write_text(writer, " ");
  }
}

static void (*const comments[PEN_SCHEMAS])(struct pen_c_writer *writer, const void *row) = {
    [PEN_SCHEMA_ACTION] = comment_action,
    [PEN_SCHEMA_MESSAGE] = comment_message,
    [PEN_SCHEMA_OP] = comment_op,
};

/* ---- tables ---- */

/* What pen_tables_each() hands on. */
struct emission {
  struct pen_c_writer *writer;
  uint32_t *op_table; /* [rank] of the profile: the rank whose table of ops it uses */
};

static bool ops_are_equal(const struct pen_rank_program *a, const struct pen_rank_program *b) {
  if (a->op_count != b->op_count) return false;
  const struct pen_schema *schema = &pen_schemas[PEN_SCHEMA_OP];
  for (uint32_t op = 0; op < a->op_count; op++)
    for (const struct pen_column *column = schema->column;
         column < schema->column + schema->column_count; column++)
      for (size_t index = 0; index < pen_column_values(column); index++)
        if (pen_column_value(column, &a->ops[op], index) !=
            pen_column_value(column, &b->ops[op], index))
          return false;
  return true;
}

/* Does a rank use the ops of the rank before? Records whose it uses. */
static bool shares_ops(struct emission *emission, const struct pen_table *table) {
  const struct pen_rank_program *own = &table->profile->ranks[table->rank];
  bool shares = table->rank > 0 && ops_are_equal(own - 1, own);
  emission->op_table[table->rank] = shares ? emission->op_table[table->rank - 1] : table->rank;
  return shares;
}

/* The pointers of a rank to its tables. */
static void write_pointers(const struct emission *emission, const struct pen_profile *profile,
                           uint32_t rank) {
  static const int tables[] = {PEN_SCHEMA_ACTION, PEN_SCHEMA_PROGRAM, PEN_SCHEMA_OP,
                               PEN_SCHEMA_TENSOR, PEN_SCHEMA_FRAME,   PEN_SCHEMA_COLLECTIVE,
                               PEN_SCHEMA_PUT};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    const char *name = pen_schemas[tables[i]].name;
    uint32_t of_rank = tables[i] == PEN_SCHEMA_OP ? emission->op_table[rank] : rank;
    char text[64];
    snprintf(text, sizeof text, ".%s = ", name);
    pen_write_text(emission->writer, text);
    snprintf(text, sizeof text, "rank%u_%s, ", (unsigned)of_rank, name);
    pen_write_name(emission->writer, profile, text);
  }
}

static void write_legend(struct pen_c_writer *writer, const struct pen_schema *schema) {
  pen_write_text(writer, "/* {");
  for (size_t n = 0; n < schema->column_count; n++) {
    pen_write_text(writer, n ? ", " : "");
    pen_write_text(writer, schema->column[n].name);
  }
  pen_write_text(writer, "}; what is missing at the end of a row is 0 */\n");
}

static void write_table_head(struct pen_c_writer *writer, const struct pen_table *table) {
  ptrdiff_t index = table->schema - pen_schemas;
  char text[64];
  if (index == PEN_SCHEMA_WEIGHT)
    pen_write_text(writer, "/* ======== weights, in model order ======== */\n");
  if (index == PEN_SCHEMA_TIE)
    pen_write_text(writer, "\n/* ======== the matrix that embedding and head share ======== */\n");
  if (index == PEN_SCHEMA_INPUT)
    pen_write_text(writer, "\n/* ======== inputs that data have by name ======== */\n");
  if (index == PEN_SCHEMA_OUTPUT)
    pen_write_text(writer, "\n/* ======== values that a step keeps ======== */\n");
  if (index == PEN_SCHEMA_SHARE)
    pen_write_text(writer, "\n/* ======== shares of losses ======== */\n");
  if (index == PEN_SCHEMA_ROUTER_LOSS)
    pen_write_text(writer, "\n/* ======== losses of routers ======== */\n");
  if (index == PEN_SCHEMA_ROUTER) pen_write_text(writer, "\n/* ======== routers ======== */\n");
  if (index == PEN_SCHEMA_POINTWISE)
    pen_write_text(writer, "\n/* ======== programs of element-wise operations ======== */\n");
  if (index == PEN_SCHEMA_MEMORY) pen_write_text(writer, "\n/* ======== ranks ======== */\n");
  if (index == PEN_SCHEMA_STAGE) {
    pen_write_text(writer, "\n/* ======== profile ");
    pen_write_text(writer, table->profile->name);
    pen_write_text(writer, " ======== */\n");
  }
  snprintf(text, sizeof text, "\n/* ---- rank %u ---- */\n", (unsigned)table->rank);
  if (index == PEN_SCHEMA_ACTION) pen_write_text(writer, text);
  pen_write_text(writer, "\n");
  if (!table->schema->is_named) write_legend(writer, table->schema);
  pen_write_text(writer, "static const struct ");
  pen_write_text(writer, table->schema->type);
  pen_write_text(writer, " ");
  snprintf(text, sizeof text, "rank%u_", (unsigned)table->rank);
  pen_write_name(writer, table->profile, table->rank != PEN_NONE ? text : "");
  pen_write_text(writer, table->schema->name);
  pen_write_text(writer, "[] = {");
  pen_write_line_end(writer);
}

static void write_named_row(const struct emission *emission, const struct pen_table *table,
                            uint32_t index, const void *row) {
  struct pen_c_writer *writer = emission->writer;
  pen_write_text(writer, "  [");
  pen_write_number(writer, index);
  pen_write_text(writer, "] = {");
  if (table->schema == &pen_schemas[PEN_SCHEMA_RANK_PROGRAM])
    write_pointers(emission, table->profile, index);
  pen_write_fields(writer, table->schema, row);
  pen_write_text(writer, "},");
  pen_write_line_end(writer);
}

static void write_ordered_row(struct pen_c_writer *writer, const struct pen_table *table,
                              uint32_t index, const void *row) {
  ptrdiff_t schema = table->schema - pen_schemas;
  pen_write_text(writer, "  {");
  write_ordered(writer, table->schema, row);
  pen_write_text(writer, "}, /* ");
  pen_write_number(writer, index);
  if (comments[schema]) {
    pen_write_text(writer, ": ");
    comments[schema](writer, row);
  }
  pen_write_text(writer, " */");
  pen_write_line_end(writer);
}

static void write_table(const struct pen_table *table, void *context) {
  struct emission *emission = context;
  ptrdiff_t schema = table->schema - pen_schemas;
  if (schema == PEN_SCHEMA_PROFILE || schema == PEN_SCHEMA_OPTIMIZER || schema == PEN_SCHEMA_PLAN)
    return; /* plan_c.c writes these */
  if (schema == PEN_SCHEMA_OP && shares_ops(emission, table)) return;
  write_table_head(emission->writer, table);
  for (uint32_t index = 0; index < table->count; index++) {
    const void *row = (const char *)table->rows + index * table->schema->row_bytes;
    if (table->schema->is_named)
      write_named_row(emission, table, index, row);
    else
      write_ordered_row(emission->writer, table, index, row);
  }
  pen_write_text(emission->writer, table->count ? "};" : "  {0}, /* none */\n};");
  pen_write_line_end(emission->writer);
}

void pen_emit_tables(struct pen_c_writer *writer, const struct pen_plan *plan) {
  struct emission emission = {.writer = writer,
                              .op_table = pen_new(plan->rank_count, sizeof *emission.op_table)};
  pen_tables_each(plan, write_table, &emission);
}
