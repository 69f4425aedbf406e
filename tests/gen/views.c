/* views.c: each view of many plans is well-formed and complete: all actions, at their times, once.
 */
#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "gen/views/live_ranges.h"
#include "gen/views/chart.h"
#include "gen/views/views.h"
#include "gen/base/arena.h"
#include "gen/schedule/order.h"
#include "gen/timing/timing.h"
#include "gen/lower/lower.h"
#include "gen/schedule/action_text.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_fixture.h"
#include "gen/partition/training.h"

/* ---- plans ---- */

static const struct {
  const char *family, *schedule, *more;
  unsigned ranks, stages, microbatches;
  const char *groups; /* of the topology, added at its end */
} plans[] = {
    {"mlp", "1f1b", "", 1, 1, 1, ""},
    {"mlp", "1f1b", "", 2, 1, 4, ""},
    {"mlp", "gpipe", "", 4, 1, 8, ""},
    {"llama", "1f1b", "", 3, 2, 6, ""},
    {"mlp", "1f1b", "zero_bubble = true;", 4, 1, 8, ""},
    {"mlp", "looped_bfs", "", 2, 3, 5, ""},
    {"llama", "zero_bubble_v", "", 4, 2, 9, ""},
    {"mlp", "dual_pipe_v", "", 4, 2, 10, ""},
    {"mlp", "inference", "", 3, 1, 5, ""},
    {"llama", "v_half", "", 4, 2, 8, ""},
    {"qwen2", "zb_h1", "", 3, 1, 6, ""},
    {"mlp", "v_min", "/* no clip */", 4, 2, 8, ""},
    {"llama", "zb_h2", "", 3, 1, 8, "memory = { recompute = \"full\"; };\n"},
    {"llama", "interleaved", "", 2, 2, 6,
     "memory = { recompute = [\"none\", \"full\", \"full\", \"none\"]; };\n"},
    {"llama", "zero_bubble_v", "/* no clip */", 2, 2, 5,
     "partition = { before = [\"model.layers.0.mlp\", \"model.layers.2\", \"lm_head\"]; };\n"},
    {"llama", "zero_bubble_v", "", 2, 2, 5,
     "data_parallel = { replicas = 2; shard = \"weights\"; reshard = \"use\"; };\n"},
    {"mlp", "dual_pipe_v", "", 2, 2, 6,
     "data_parallel = { replicas = 2; shard = \"weights\"; };\n"},
    {"llama", "1f1b", "", 2, 1, 4, "tensor_parallel = { ranks = 2; };\n"},
    {"llama", "zb_h1", "", 2, 1, 4,
     "data_parallel = { replicas = 2; shard = \"weights\"; reduce = \"microbatch\"; };\n"},
};
enum { PLANS = sizeof plans / sizeof *plans };

/* The view of an entry of the table; costs with and without latencies alternate. */
static struct pen_view view_of(struct whole *whole, unsigned row) {
  const char *text = topology_text(plans[row].family, plans[row].schedule, plans[row].ranks,
                                   plans[row].stages, plans[row].microbatches, plans[row].more);
  text = pen_text("%s%s", text, plans[row].groups);
  if (row % 2)
    text = pen_text(
        "%scosts = { forward = 1; backward_input = 1.1; backward_weight = 0.9; send = 0.25; };\n",
        text);
  *whole = make_whole(text);
  return (struct pen_view){.plan = whole->plan,
                           .partition = whole->partition,
                           .training = whole->training,
                           .order = whole->order,
                           .timing = whole->timing,
                           .cost = whole->cost,
                           .unit = "in units",
                           .arrows = true,
                           .critical = true,
                           .columns = 80};
}

/* Not inlined: gcc 12 takes the stream's buffer for the pointer that names it. */
__attribute__((noinline)) static char *drawn(void (*draw)(FILE *out, const struct pen_view *view),
                                             const struct pen_view *view) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  draw(out, view);
  fclose(out);
  return text;
}

static size_t occurrences(const char *text, const char *word) {
  size_t count = 0;
  for (; (text = strstr(text, word)); text += strlen(word)) count++;
  return count;
}

static size_t action_count(const struct pen_order *order) {
  size_t count = 0;
  for (uint32_t rank = 0; rank < order->rank_count; rank++) count += order->count[rank];
  return count;
}

static size_t message_count(const struct pen_plan *plan) { return plan->profiles[0].message_count; }

/* ---- svg ---- */

/* A strict reader of the little XML that a view needs: one root, tags that match, quoted
 * attributes, the five entities, no control characters, UTF-8 left alone. Returns what is wrong, or
 * null. */
static const char *xml_problem(const char *text) {
  char open[64][16];
  int depth = 0, roots = 0;
  for (const char *at = text; *at;) {
    if (*at != '<') {
      if ((unsigned char)*at < ' ' && *at != '\n') return "a control character";
      if (*at == '>') return "a bare >";
      if (*at == '&' && strncmp(at, "&amp;", 5) && strncmp(at, "&lt;", 4) && strncmp(at, "&gt;", 4))
        return "a bare &";
      if (depth == 0 && *at != '\n') return "text outside the root";
      at++;
      continue;
    }
    bool closes = at[1] == '/';
    const char *name = at + 1 + closes;
    int bytes = (int)strspn(name, "abcdefghijklmnopqrstuvwxyz");
    if (bytes == 0 || bytes > 15) return "a tag without a name";
    for (at = name + bytes; *at && *at != '>' && *at != '/';) {
      size_t word = strspn(at, " \n"),
             key = strspn(at + word,
                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
      if (word == 0 || key == 0 || at[word + key] != '=' || at[word + key + 1] != '"')
        return "an attribute that is none";
      const char *value = at + word + key + 2;
      at = value + strcspn(value, "\"<&");
      if (*at++ != '"') return "an attribute without an end";
    }
    bool empty = *at == '/';
    if (at[empty] != '>') return "a tag without an end";
    at += 1 + empty;
    if (closes) {
      if (depth == 0 || (int)strlen(open[depth - 1]) != bytes ||
          strncmp(open[--depth], name, (size_t)bytes))
        return "tags that cross";
    } else if (!empty) {
      if (depth == 64) return "too deep";
      roots += depth == 0;
      snprintf(open[depth++], sizeof open[0], "%.*s", bytes, name);
    }
  }
  return depth ? "a tag that stays open" : roots == 1 ? NULL : "more than one root";
}

static void the_xml_reader_finds_errors(void **state) {
  (void)state;
  static const char *const bad[] = {"<a>",         "<a></b>",      "<a><b></a></b>", "<a x=1/>",
                                    "<a x=\"1/>",  "<a>&</a>",     "<a/><a/>",       "x<a/>",
                                    "<a>\001</a>", "<a x=\"<\"/>", "<a>></a>",       "<>"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_non_null(xml_problem(bad[i]));
  assert_null(xml_problem("<a x=\"1\"><b/>t &amp; u</a>\n"));
}

/* The boxes of a kind, summed: the width of all actions together is the ranks' work. */
static double work_drawn(const char *svg, const struct pen_view *view) {
  static const char *const fills[] = {"#b5d5f2", "#44508f", "#ec9532", "#1b7a55"};
  double drawn_width = 0, chart = 0;
  sscanf(strstr(svg, "<g fill=\"#f1f2f4\">") + strlen("<g fill=\"#f1f2f4\">"),
         " <rect x=\"%*f\" y=\"%*f\" width=\"%lf\"", &chart);
  for (size_t i = 0; i < 4; i++) {
    const char *group = strstr(svg, pen_text("<g fill=\"%s\" stroke=", fills[i]));
    if (!group) continue;
    const char *end = strstr(group, "</g>");
    for (const char *box = group; (box = strstr(box, "<rect")) && box < end; box++) {
      double width, height;
      assert_int_equal(
          sscanf(box, "<rect x=\"%*f\" y=\"%*f\" width=\"%lf\" height=\"%lf\"", &width, &height),
          2);
      drawn_width += height < 12 ? width / 2 : width; /* one of a pair */
    }
  }
  return drawn_width / chart * view->timing->makespan;
}

static void svg_is_well_formed_and_complete(void **state) {
  (void)state;
  for (unsigned row = 0; row < PLANS; row++) {
    struct whole whole;
    struct pen_view view = view_of(&whole, row);
    whole.plan->name = "a<b & \"c\" \001 \xc3\xa9";
    char *svg = drawn(pen_gantt_svg, &view);
    if (xml_problem(svg)) fail_msg("plan %u: %s", row, xml_problem(svg));
    assert_non_null(strstr(svg, "a&lt;b &amp; \"c\" ? \xc3\xa9"));
    double busy = 0;
    for (uint32_t rank = 0; rank < whole.plan->rank_count; rank++) busy += view.timing->busy[rank];
    if (fabs(work_drawn(svg, &view) / busy - 1) > 0.01)
      fail_msg("plan %u: %g is drawn of %g", row, work_drawn(svg, &view), busy);
    const char *arrows = strstr(svg, "marker-end");
    assert_non_null(arrows);
    char *part = strndup(arrows, (size_t)(strstr(arrows, "</g>") - arrows));
    assert_int_equal(occurrences(part, "<line"), message_count(whole.plan));
    free(part);
    view.arrows = view.critical = false;
    char *plain = drawn(pen_gantt_svg, &view);
    assert_null(strstr(plain, "marker-end"));
    assert_true(strlen(plain) < strlen(svg));
    free(plain);
    free(svg);
    pen_free_all();
  }
}

/* ---- trace ---- */

static double number(const json_t *event, const char *key) {
  return json_number_value(json_object_get(event, key));
}

/* What a trace has for a rank: no two actions at once, and their total time. */
struct line {
  double end, busy;
};

static void check_trace(const struct pen_view *view, const json_t *events, unsigned row) {
  struct line *line = pen_new(2 * (size_t)view->plan->rank_count, sizeof *line);
  size_t actions = 0, sent = 0, came = 0, named = 0, index;
  double makespan = view->timing->makespan * 1000;
  json_t *event;
  json_array_foreach(events, index, event) {
    const char *phase = json_string_value(json_object_get(event, "ph"));
    double at = number(event, "ts"), past = at + number(event, "dur");
    assert_non_null(phase);
    assert_true(number(event, "pid") < view->plan->rank_count);
    if (*phase == 'X') {
      struct line *own = &line[2 * (size_t)number(event, "pid") + (size_t)number(event, "tid")];
      if (at < own->end - 0.002 || past > makespan + 0.002)
        fail_msg("plan %u: an action at %g to %g", row, at, past);
      own->end = past;
      own->busy += past - at;
      actions++;
    }
    sent += *phase == 's';
    came += *phase == 'f';
    named += *phase == 'M';
    if (*phase == 's') { /* its end comes next */
      const json_t *other = json_array_get(events, index + 1);
      assert_int_equal((int)number(other, "id"), (int)number(event, "id"));
      assert_true(number(other, "pid") != number(event, "pid"));
      if (number(other, "ts") < at - 0.002)
        fail_msg("plan %u: a message is read before it is sent", row);
    }
  }
  assert_int_equal(actions, action_count(view->order));
  assert_int_equal(sent, message_count(view->plan));
  assert_int_equal(came, sent);
  assert_int_equal(named, view->plan->rank_count);
  for (uint32_t rank = 0; rank < view->plan->rank_count; rank++)
    if (fabs(line[2 * rank].busy - view->timing->busy[rank] * 1000) > 0.002 * (double)actions)
      fail_msg("plan %u, rank %u: busy for %g", row, rank, line[2 * rank].busy);
}

static void trace_is_json_and_complete(void **state) {
  (void)state;
  for (unsigned row = 0; row < PLANS; row++) {
    struct whole whole;
    struct pen_view view = view_of(&whole, row);
    char *text = drawn(pen_chrome_trace, &view);
    json_error_t error;
    json_t *trace = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!trace) fail_msg("plan %u: line %d: %s", row, error.line, error.text);
    const json_t *events = json_object_get(trace, "traceEvents");
    assert_true(json_is_array(events));
    check_trace(&view, events, row);
    json_decref(trace);
    free(text);
    pen_free_all();
  }
}

/* ---- text ---- */

static size_t longest_line(const char *text) {
  size_t longest = 0;
  for (; *text; text += strcspn(text, "\n") + 1)
    if (strcspn(text, "\n") > longest) longest = strcspn(text, "\n");
  return longest;
}

static void text_fits_its_columns(void **state) {
  (void)state;
  static const int widths[] = {40, 80, 133, 1000};
  for (unsigned row = 0; row < PLANS; row++)
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
      struct whole whole;
      struct pen_view view = view_of(&whole, row);
      view.columns = widths[i];
      char *plain = drawn(pen_gantt_text, &view);
      if (longest_line(plain) > (size_t)widths[i])
        fail_msg("plan %u: %zu columns of %d", row, longest_line(plain), widths[i]);
      assert_null(strchr(plain, '\033'));
      assert_int_equal(occurrences(plain, "|\n"), view.plan->rank_count);
      view.colour = true;
      char *colour = drawn(pen_gantt_text, &view);
      assert_true(occurrences(colour, "\033[48") > 0 &&
                  occurrences(colour, "\033[48") == occurrences(colour, "\033[0m"));
      free(plain);
      free(colour);
      pen_free_all();
    }
}

/* With room for all of it the chart shows each action of a rank, in order, by name. */
static void text_shows_every_action(void **state) {
  (void)state;
  struct whole whole = make_whole(topology_text("mlp", "1f1b", 2, 1, 3, "zero_bubble = true;"));
  for (int stage = 0; stage < 2; stage++)
    whole.cost[stage] = (struct pen_stage_cost){1, 2, 1, 0, 0, 0, {0}, {0}};
  whole.timing = pen_simulate(whole.order, whole.partition, &pen_training_none, whole.cost, -1);
  struct pen_view view = {.plan = whole.plan,
                          .partition = whole.partition,
                          .training = &pen_training_none,
                          .order = whole.order,
                          .timing = whole.timing,
                          .cost = whole.cost,
                          .unit = "in units",
                          .columns = 4 * 14 + 4};
  assert_true(fabs(view.timing->makespan - 14) < 1e-12);
  whole.plan->name = "two";
  char *text = drawn(pen_gantt_text, &view);
  char *lanes = strchr(text, '\n') + 1;
  const char *wanted =
      "0 |F0--F1--        I0======W0~~F2--I1======W1~~I2======W2~~|\n"
      "1 |    F0--I0======F1--I1======W0~~F2--I2======W1~~W2~~    |\n";
  assert_string_equal(pen_text("%.*s", (int)strlen(wanted), lanes), wanted);
  free(text);
  pen_free_all();
}

/* ---- csv-comms ---- */

/* UNSHARD and RESHARD of a stage alternate; with sharded weights all computations are between them.
 */
static void takes_turns(const char *word, bool *whole, bool shared_out) {
  char *kind;
  bool *own = &whole[strtoul(word, &kind, 10)];
  bool opens = strcmp(kind, "UNSHARD") == 0, closes = strcmp(kind, "RESHARD") == 0;
  if ((opens && *own) || (closes && !*own)) fail_msg("%s a second time", word);
  if ((opens || closes) && !shared_out) fail_msg("%s, but weights are not shared out", word);
  if (strchr("FBIW", *kind) && kind[0] && kind[1] >= '0' && kind[1] <= '9' && shared_out && !*own)
    fail_msg("%s has no weights", word);
  *own = opens || (*own && !closes);
}

/* Each send has its receive on the rank of its reader and, later there, its wait; computations are
 * in the order of the schedule. */
static void communications_match(void **state) {
  (void)state;
  for (unsigned row = 0; row < PLANS; row++) {
    struct whole whole;
    struct pen_view view = view_of(&whole, row);
    char *text = drawn(pen_torch_comms, &view), *line = text;
    size_t sends = 0;
    bool *weights_whole = pen_new(whole.partition->stage_count, sizeof *weights_whole);
    const char *all = pen_text(",%s", text);
    for (uint32_t rank = 0; rank < whole.plan->rank_count; rank++) {
      char *end = strstr(line, "\r\n"), *rest;
      assert_non_null(end);
      *end = 0;
      uint32_t next = 0;
      const char *own = pen_text(",%s,", line);
      for (char *word = strtok_r(line, ",;()", &rest); word; word = strtok_r(NULL, ",;()", &rest)) {
        unsigned stage, microbatch;
        char kind[20], wanted[32];
        if (*word >= '0' && *word <= '9')
          takes_turns(word, weights_whole, whole.partition->sharding == PEN_SHARD_WEIGHTS);
        if (sscanf(word, "%u%19[A-Z_]%u", &stage, kind, &microbatch) != 3)
          continue; /* OVERLAP_F_B, reductions */
        if (strlen(kind) == 1) {
          const struct pen_compute *action = &whole.order->action[rank][next++];
          assert_string_equal(
              word, pen_action_format(wanted, action->kind, action->stage, action->microbatch));
        } else if (strncmp(kind, "SEND_", 5) == 0) {
          unsigned reader = kind[5] == 'F' ? stage + 1 : stage - 1;
          const char *wait =
              strstr(own, pen_text(",%uWAIT_SEND_%c%u,", stage, kind[5], microbatch));
          if (!wait || wait < strstr(own, pen_text(",%s,", word)))
            fail_msg("plan %u: %s is not awaited", row, word);
          if (!strstr(all, pen_text(",%uRECV_%c%u", reader, kind[5], microbatch)) &&
              !strstr(all, pen_text("\n%uRECV_%c%u", reader, kind[5], microbatch)))
            fail_msg("plan %u: %s is not received", row, word);
          sends++;
        }
      }
      assert_int_equal(next, whole.order->count[rank]);
      line = end + 2;
    }
    assert_int_equal(sends, message_count(whole.plan));
    for (uint32_t stage = 0; stage < whole.partition->stage_count; stage++)
      assert_false(weights_whole[stage]);
    free(text);
    pen_free_all();
  }
}

/* ---- memory ---- */

/* No byte is in two buffers at one action; all buffers are within the placed part; their total is
 * the reported use. */
static void buffers_in_use_do_not_overlap(void **state) {
  (void)state;
  for (unsigned row = 0; row < PLANS; row++) {
    struct whole whole;
    struct pen_view view = view_of(&whole, row);
    for (uint32_t rank = 0; rank < whole.plan->rank_count; rank++) {
      struct pen_live_buffers lives =
          pen_live_buffers_of(whole.plan, &whole.plan->profiles[0], rank);
      const struct pen_rank_memory *memory = &whole.plan->memory[rank];
      assert_true(lives.count > 0);
      uint64_t peak = 0;
      for (uint32_t at = 0; at < whole.plan->profiles[0].ranks[rank].action_count; at++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < lives.count; i++) {
          const struct pen_live_buffer *a = &lives.range[i];
          if (at < a->first || at > a->last) continue;
          sum += a->bytes;
          bool in_window = a->offset + a->bytes <= memory->receive_bytes;
          if (!in_window &&
              (a->offset < memory->persistent_end || a->offset + a->bytes > memory->arena_bytes))
            fail_msg("plan %u, rank %u: %s lies outside", row, rank, pen_base_text(a->base));
          for (size_t k = i + 1; k < lives.count; k++) {
            const struct pen_live_buffer *b = &lives.range[k];
            bool both = at >= b->first && at <= b->last,
                 apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            if (both && !apart)
              fail_msg("plan %u, rank %u, row %u: %s of %u,%u and %s of %u,%u share bytes", row,
                       rank, at, pen_base_text(a->base), a->stage, a->microbatch,
                       pen_base_text(b->base), b->stage, b->microbatch);
          }
        }
        assert_int_equal(sum, lives.in_use[at]);
        if (sum > peak) peak = sum;
      }
      assert_true(peak <= memory->receive_bytes + memory->activation_bytes);
    }
    char *map = drawn(pen_memory_map, &view);
    assert_int_equal(occurrences(map, "bytes placed"), whole.plan->rank_count);
    free(map);
    pen_free_all();
  }
}

/* ---- scales ---- */

static void scales_are_round(void **state) {
  (void)state;
  assert_true(fabs(pen_scale_step(100, 10) - 10) < 1e-9);
  assert_true(fabs(pen_scale_step(101, 10) - 20) < 1e-9);
  assert_true(fabs(pen_scale_step(0.7, 3) - 0.5) < 1e-12);
  assert_true(fabs(pen_scale_step(7e5, 10) - 1e5) < 1e-3);
  assert_true(pen_scale_step(0, 10) == 1 && pen_scale_step(NAN, 10) == 1);
  for (double span = 1e-6; span < 1e6; span *= 1.37)
    assert_true(span / pen_scale_step(span, 9) <= 9 + 1e-9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_xml_reader_finds_errors),
      cmocka_unit_test(svg_is_well_formed_and_complete),
      cmocka_unit_test(trace_is_json_and_complete),
      cmocka_unit_test(text_fits_its_columns),
      cmocka_unit_test(text_shows_every_action),
      cmocka_unit_test(communications_match),
      cmocka_unit_test(buffers_in_use_do_not_overlap),
      cmocka_unit_test(scales_are_round),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_free_all();
  return failed != 0;
}
