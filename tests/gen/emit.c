/* emit.c: the C that is emitted, compiled, holds the plan that was verified, column by column; and
 * the digest covers every column. */
#include <stdio.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "gen/emit/columns.h"
#include "gen/emit/plan_c.h"
#include "gen/base/arena.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"
#include "tests/support/broken.h"

/* ---- columns ---- */

/* Every byte of a row is a column's, or fills up before a wider column or the row's end; pointers
 * to tables lead a rank's row. */
static void columns_fill_rows(void **state) {
  (void)state;
  for (int index = 0; index < PEN_SCHEMAS; index++) {
    const struct pen_schema *form = &pen_schemas[index];
    size_t at = index == PEN_SCHEMA_RANK_PROGRAM ? 5 * sizeof(void *) : 0, count = 0, widest = 1;
    for (; count < form->column_count; count++) {
      const struct pen_column *next = NULL; /* by place: columns may be listed in another order */
      for (size_t n = 0; n < form->column_count; n++)
        if (form->column[n].offset >= at && (!next || form->column[n].offset < next->offset))
          next = &form->column[n];
      assert_non_null(next);
      if (next->offset - at >= next->bytes)
        fail_msg("%s: bytes before %s are no column's", form->type, next->name);
      at = next->offset + next->bytes * (next->count ? next->count : 1);
      widest = next->bytes > widest ? next->bytes : widest;
    }
    if (form->row_bytes - at >= (index == PEN_SCHEMA_RANK_PROGRAM ? sizeof(void *) : widest))
      fail_msg("%s: bytes at the end", form->type);
  }
}

/* ---- the compiled plan ---- */

enum { TABLES_MAX = 256 };
struct tables {
  struct pen_table table[TABLES_MAX];
  size_t count;
};

static void list_table(const struct pen_table *table, void *context) {
  struct tables *tables = context;
  assert_true(tables->count < TABLES_MAX);
  tables->table[tables->count++] = *table;
}

static const char *text_of(const struct pen_column *column, const char *row) {
  return column->format == PEN_AS_TEXT ? *(const char *const *)(row + column->offset) : "";
}

/* A column that an action's kind does not use is not looked at. */
static bool is_used(const struct pen_table *table, const char *row,
                    const struct pen_column *column) {
  if (table->form != &pen_schemas[PEN_SCHEMA_ACTION]) return true;
  const struct pen_action *action = (const void *)row;
  int kind = action->kind;
  if (strcmp(column->name, "message") == 0)
    return (kind > PEN_W && kind < PEN_NORM) ||
           (kind == PEN_ADD_TIED_GRAD && action->message != PEN_NONE);
  return (strcmp(column->name, "program") != 0 && strcmp(column->name, "frame") != 0) ||
         kind <= PEN_W;
}

static void compare_rows(const struct pen_table *a, const struct pen_table *b) {
  assert_ptr_equal(a->form, b->form);
  assert_int_equal(a->count, b->count);
  for (size_t index = 0; index < a->count; index++)
    for (const struct pen_column *column = a->form->column;
         column < a->form->column + a->form->column_count; column++) {
      const char *x = (const char *)a->rows + index * a->form->row_bytes,
                 *y = (const char *)b->rows + index * a->form->row_bytes;
      bool same = strcmp(text_of(column, x), text_of(column, y)) == 0;
      for (size_t n = 0; n < (column->count ? column->count : 1); n++)
        same = same && pen_column_value(column, x, n) == pen_column_value(column, y, n);
      if (!same && is_used(a, x, column))
        fail_msg("%s, row %zu: %s differs", a->form->type, index, column->name);
    }
}

/* Compiles the plan into a library and opens it. */
static void *compile(const struct pen_plan *plan, const char *folder) {
  static const struct pen_timing timing = {.complete = true};
  static const unsigned char source_digest[PEN_DIGEST_BYTES];
  static const char *compiler, *sources;
  compiler = getenv("CC") ? getenv("CC") : "cc";
  sources = getenv("top_srcdir") ? getenv("top_srcdir") : ".";
  struct pen_emit_header header = {
      .command = "test", .source_digest = source_digest, .cost_unit = "s", .timing = &timing};
  FILE *out = fopen(pen_text("%s/plan.c", folder), "w");
  assert_non_null(out);
  pen_emit_c(out, plan, &header);
  assert_int_equal(fclose(out), 0);
  const char *command =
      pen_text("%s -I'%s' -std=gnu17 -Wall -Wextra -Werror -fPIC -shared -o %s/plan.so %s/plan.c",
               compiler, sources, folder, folder);
  assert_int_equal(system(command), 0);
  void *library = dlopen(pen_text("%s/plan.so", folder), RTLD_NOW | RTLD_LOCAL);
  assert_int_equal(unlink(pen_text("%s/plan.c", folder)) | unlink(pen_text("%s/plan.so", folder)),
                   0);
  return library;
}

static void compiled_plans_are_the_same(void **state) {
  (void)state;
  char folder[] = "/tmp/penstock-emit.XXXXXX";
  assert_non_null(mkdtemp(folder));
  for (size_t which = 0; which < PLAN_SHAPES; which++) {
    struct pen_plan *plan = shape_plan(which);
    plan->name = "a \"test\""; /* as of a file: --name takes no such */
    pen_plan_digest(plan);
    void *library = compile(plan, folder);
    if (!library) fail_msg("%s", dlerror());
    const struct pen_plan *compiled = dlsym(library, "pen_plan");
    assert_non_null(compiled);
    struct tables own = {.count = 0}, theirs = {.count = 0};
    pen_tables_each(plan, list_table, &own);
    pen_tables_each(compiled, list_table, &theirs);
    assert_int_equal(own.count, theirs.count);
    for (size_t n = 0; n < own.count; n++) compare_rows(&own.table[n], &theirs.table[n]);
    assert_memory_equal(plan->digest, compiled->digest, PEN_DIGEST_BYTES);
    assert_string_equal(plan->name, compiled->name);
    assert_string_equal(plan->settings, compiled->settings);
    assert_string_equal(plan->model_header, compiled->model_header);
    assert_int_equal(plan->loss_offset, compiled->loss_offset);
    dlclose(library);
    pen_free_all();
  }
  rmdir(folder);
}

/* ---- the digest ---- */

static void digest_covers_every_column(void **state) {
  (void)state;
  struct pen_plan *plan = shape_plan(5);
  uint8_t digest[PEN_DIGEST_BYTES];
  struct tables tables = {.count = 0};
  pen_plan_digest(plan);
  memcpy(digest, plan->digest, sizeof digest);
  pen_tables_each(plan, list_table, &tables);
  for (size_t t = 0; t < tables.count; t++) {
    const struct pen_table *table = &tables.table[t];
    if (table->form == &pen_schemas[PEN_SCHEMA_RANK_PROGRAM])
      continue; /* its counts say how much is read */
    for (const struct pen_column *column = table->form->column;
         column < table->form->column + table->form->column_count; column++) {
      if (table->count == 0 || column->format == PEN_AS_TEXT) continue;
      uint8_t *last = WRITABLE(
          uint8_t, (const char *)table->rows + (table->count - 1) * table->form->row_bytes +
                       column->offset + column->bytes * (column->count ? column->count : 1) - 1);
      *last ^= 1; /* the column's last byte, in the table's last row */
      pen_plan_digest(plan);
      if (memcmp(digest, plan->digest, sizeof digest) == 0)
        fail_msg("%s: the digest does not cover %s", table->form->type, column->name);
      *last ^= 1;
    }
  }
  pen_plan_digest(plan);
  assert_memory_equal(digest, plan->digest, sizeof digest);
  pen_free_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_fill_rows),
      cmocka_unit_test(compiled_plans_are_the_same),
      cmocka_unit_test(digest_covers_every_column),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
