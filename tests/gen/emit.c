/* emit.c: the emitted C, compiled, has the verified plan, column by column; the digest covers each
 * column. */
#include <stdio.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "gen/emit/columns.h"
#include "gen/emit/emit.h"
#include "gen/base/arena.h"
#include "gen/timing/timing.h"
#include "runtime/plan/plan.h"
#include "tests/support/broken.h"

/* ---- columns ---- */

static void tables_have_columns_and_names(void **state) {
  (void)state;
  for (int index = 0; index < PEN_SCHEMAS; index++) {
    const struct pen_schema *schema = &pen_schemas[index];
    assert_true(schema->column_count > 0 && *schema->name != '\0');
    for (const struct pen_column *column = schema->column;
         column < schema->column + schema->column_count; column++)
      if (column->offset + column->bytes * pen_column_values(column) > schema->row_bytes)
        fail_msg("%s: %s ends after the row", schema->type, column->name);
  }
}

/* ---- the compiled plan ---- */

enum { TABLES_MAX = 256 };
struct table_list {
  struct pen_table table[TABLES_MAX];
  size_t count;
};

static void list_table(const struct pen_table *table, void *context) {
  struct table_list *tables = context;
  assert_true(tables->count < TABLES_MAX);
  tables->table[tables->count++] = *table;
}

static void compare_rows(const struct pen_table *a, const struct pen_table *b) {
  assert_ptr_equal(a->schema, b->schema);
  assert_int_equal(a->count, b->count);
  for (size_t index = 0; index < a->count; index++)
    for (const struct pen_column *column = a->schema->column;
         column < a->schema->column + a->schema->column_count; column++) {
      const char *x = (const char *)a->rows + index * a->schema->row_bytes,
                 *y = (const char *)b->rows + index * a->schema->row_bytes;
      bool same = column->format != PEN_AS_TEXT ||
                  strcmp(pen_column_text(column, x), pen_column_text(column, y)) == 0;
      for (size_t n = 0; n < pen_column_values(column); n++)
        same = same && pen_column_value(column, x, n) == pen_column_value(column, y, n);
      if (!same) fail_msg("%s, row %zu: %s differs", a->schema->type, index, column->name);
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
    struct table_list own = {.count = 0}, theirs = {.count = 0};
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
  struct table_list tables = {.count = 0};
  pen_plan_digest(plan);
  memcpy(digest, plan->digest, sizeof digest);
  pen_tables_each(plan, list_table, &tables);
  for (size_t t = 0; t < tables.count; t++) {
    const struct pen_table *table = &tables.table[t];
    if (table->schema == &pen_schemas[PEN_SCHEMA_RANK_PROGRAM] ||
        table->schema == &pen_schemas[PEN_SCHEMA_PROFILE] ||
        table->schema == &pen_schemas[PEN_SCHEMA_PLAN])
      continue; /* their counts say how much is read */
    for (const struct pen_column *column = table->schema->column;
         column < table->schema->column + table->schema->column_count; column++) {
      if (table->count == 0 || column->format == PEN_AS_TEXT) continue;
      uint8_t *last = WRITABLE(
          uint8_t, (const char *)table->rows + (table->count - 1) * table->schema->row_bytes +
                       column->offset + column->bytes * pen_column_values(column) - 1);
      *last ^= 1; /* the column's last byte, in the table's last row */
      pen_plan_digest(plan);
      if (memcmp(digest, plan->digest, sizeof digest) == 0)
        fail_msg("%s: the digest does not cover %s", table->schema->type, column->name);
      *last ^= 1;
    }
  }
  pen_plan_digest(plan);
  assert_memory_equal(digest, plan->digest, sizeof digest);
  pen_free_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tables_have_columns_and_names),
      cmocka_unit_test(compiled_plans_are_the_same),
      cmocka_unit_test(digest_covers_every_column),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
