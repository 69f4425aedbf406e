/* axes.c: the values of every axis (axes.def), and the combinations that may be candidates. */
#include "gen/planner/axes.h"

#include <stdlib.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/families/families.h"
#include "gen/schedule/schedule.h"
#include "gen/topology/message.h"
#include "gen/topology/schedule_table.h"
#include "gen/topology/settings.h"
#include "gen/topology/value.h"

enum { STAGES_MOST = 64 }; /* pipeline.stages_per_rank */

/* ---- the columns of axes.def ---- */

static int64_t replicas_of(const struct pen_axes *axes, const struct pen_choice *choice) {
  return pen_axis_number(axes, choice, PEN_AXIS_replicas);
}

/* 1 where the axis does not apply. */
static int64_t tensor_ranks_of(const struct pen_axes *axes, const struct pen_choice *choice) {
  const int64_t tensor_ranks = pen_axis_number(axes, choice, PEN_AXIS_tensor);
  return tensor_ranks ? tensor_ranks : 1;
}

static int64_t pipelines_of(const struct pen_axes *axes, const struct pen_choice *choice) {
  const struct pen_group_sizes sizes = {.tensor_ranks = (uint32_t)tensor_ranks_of(axes, choice),
                                        .replica_count = (uint32_t)replicas_of(axes, choice)};
  return (int64_t)pen_count_in(sizes, ~PEN_IN(PIPELINE));
}

static bool divides_ranks(const struct pen_axes *axes, const struct pen_choice *choice) {
  return axes->written->plan_ranks % replicas_of(axes, choice) == 0;
}

static bool divides_pipelines(const struct pen_axes *axes, const struct pen_choice *choice) {
  const struct pen_topology *t = axes->written;
  return t->plan_ranks % pipelines_of(axes, choice) == 0 &&
         (!t->has_pipeline_ranks || pen_choice_ranks(axes, choice) == t->pipeline_ranks);
}

/* With one rank, several stages have no advantage: they must be asked for. */
static bool has_blocks(const struct pen_axes *axes, const struct pen_choice *choice) {
  const struct pen_axis_values *stages = &axes->axis[PEN_AXIS_stages];
  const int64_t count = pen_axis_number(axes, choice, PEN_AXIS_stages),
                ranks = pen_choice_ranks(axes, choice);
  return ranks * count <= axes->block_count &&
         (ranks > 1 || count == 1 || stages->listed || stages->fixed);
}

static bool divides_sequences(const struct pen_axes *axes, const struct pen_choice *choice) {
  const struct pen_topology *t = axes->written;
  const int64_t all =
      replicas_of(axes, choice) * pen_axis_number(axes, choice, PEN_AXIS_microbatch);
  const int64_t microbatches = t->plan_sequences / all;
  return t->plan_sequences % all == 0 &&
         (t->has_pipeline_microbatches ? microbatches == t->pipeline_microbatches
                                       : microbatches <= PEN_PLANNED_MICROBATCHES_MOST);
}

static bool allows_schedule(const struct pen_axes *axes, enum pen_schedule_kind kind) {
  const struct pen_axis_values *schedules = &axes->axis[PEN_AXIS_schedule];
  for (size_t i = 0; i < schedules->count; i++)
    if (schedules->value[i].number == (int64_t)kind) return true;
  return false;
}

static bool is_one_stage(const struct pen_axes *axes, const struct pen_choice *choice) {
  return pen_choice_ranks(axes, choice) * pen_axis_number(axes, choice, PEN_AXIS_stages) == 1;
}

/* Whether another allowed schedule has the same order: with one stage in all, 1f1b takes the same
 * time with less memory; interleaved is 1f1b with several stages a rank; looped_bfs with one stage
 * a rank is gpipe. */
static bool repeats_schedule(const struct pen_axes *axes, const struct pen_choice *choice,
                             enum pen_schedule_kind kind) {
  const struct pen_topology *t = axes->written;
  const bool allows_1f1b = allows_schedule(axes, PEN_SCHEDULE_1f1b);
  if (is_one_stage(axes, choice)) return kind != PEN_SCHEDULE_1f1b && allows_1f1b;
  if (kind == PEN_SCHEDULE_interleaved)
    return !t->has_pipeline_warmup && !t->has_pipeline_zero_bubble && allows_1f1b;
  return kind == PEN_SCHEDULE_looped_bfs && pen_axis_number(axes, choice, PEN_AXIS_stages) == 1 &&
         allows_schedule(axes, PEN_SCHEDULE_gpipe);
}

static bool suits_schedule(const struct pen_axes *axes, const struct pen_choice *choice) {
  const struct pen_schedule *schedule = pen_choice_schedule(axes, choice);
  const enum pen_schedule_kind kind = (enum pen_schedule_kind)(schedule - pen_schedules);
  const int64_t stages = pen_axis_number(axes, choice, PEN_AXIS_stages),
                microbatches = pen_choice_microbatches(axes, choice);
  return stages >= schedule->stages_minimum && stages <= schedule->stages_maximum &&
         !repeats_schedule(axes, choice, kind) &&
         pen_schedule_suits(schedule, (uint32_t)pen_choice_ranks(axes, choice), (uint32_t)stages,
                            (uint32_t)microbatches);
}

static bool cuts_itself(const struct pen_axes *axes, const struct pen_choice *choice) {
  return !is_one_stage(axes, choice) && !axes->written->has_partition_layers &&
         !axes->written->has_partition_before;
}

static bool has_replicas(const struct pen_axes *axes, const struct pen_choice *choice) {
  return replicas_of(axes, choice) > 1;
}

static bool is_chosen(const struct pen_axes *axes, const struct pen_choice *choice,
                      enum pen_axis axis, int value) {
  return choice->index[axis] != PEN_NOT_CHOSEN && pen_axis_number(axes, choice, axis) == value;
}

static bool shards_weights(const struct pen_axes *axes, const struct pen_choice *choice) {
  return is_chosen(axes, choice, PEN_AXIS_shard, PEN_SHARD_WEIGHTS);
}

static bool reduces_gradients(const struct pen_axes *axes, const struct pen_choice *choice) {
  return !is_chosen(axes, choice, PEN_AXIS_shard, PEN_SHARD_GRADIENTS) ||
         !is_chosen(axes, choice, PEN_AXIS_reduce, PEN_REDUCE_STEP);
}

static bool divides_replicas(const struct pen_axes *axes, const struct pen_choice *choice) {
  return replicas_of(axes, choice) % pen_axis_number(axes, choice, PEN_AXIS_shard_ranks) == 0;
}

static bool has_hosts(const struct pen_axes *axes, const struct pen_choice *choice) {
  (void)choice;
  return axes->written->has_cluster_hosts && axes->written->cluster_hosts.count > 1;
}

static const struct axis_row {
  const char *setting, *list, *values;
  bool (*applies)(const struct pen_axes *axes, const struct pen_choice *choice);
  bool (*keeps)(const struct pen_axes *axes, const struct pen_choice *choice);
} rows[PEN_AXES] = {
#define PEN_AXIS(key, setting, list, values, applies, keeps) \
  {setting, list, values, applies, keeps},
#include "gen/planner/axes.def"
};

/* ---- values ---- */

static void add_value(struct pen_axis_values *values, const char *text, int64_t number) {
  PEN_RESERVE(values->value, values->count + 1);
  values->value[values->count++] = (struct pen_axis_value){text, number};
}

/* Whether the planner may choose a schedule: it trains, and has a rule. */
static bool is_named_schedule(const struct pen_schedule *schedule) {
  return schedule->trains && schedule->given == PEN_GIVEN_BY_RULE;
}

static void check_schedule(const struct pen_topology *t, const char *setting,
                           const struct pen_schedule *schedule) {
  const char *allowed = "";
  for (uint32_t s = 0; s < pen_schedule_count; s++)
    if (is_named_schedule(&pen_schedules[s]))
      allowed = pen_text("%s%s\"%s\"", allowed, *allowed ? ", " : "", pen_schedules[s].name);
  if (!is_named_schedule(schedule))
    pen_topology_fail(t, setting, "of penstock-plan's schedules: %s", allowed);
}

/* The value that the topology sets. A list (of stages, of ranks) has no number. */
static void add_fixed(struct pen_axis_values *values, const struct pen_topology *t,
                      const struct pen_setting *setting) {
  const void *field = (const char *)t + setting->offset;
  values->fixed = true;
  if (setting->type == PEN_INTEGER) {
    add_value(values, pen_value_text(t, setting), *(const int64_t *)field);
  } else {
    const struct pen_chosen *all = setting->type == PEN_CHOICES ? field : NULL;
    const int value = setting->type == PEN_CHOICE ? *(const int *)field
                      : all && all->for_all       ? all->value[0]
                                                  : PEN_UNSET;
    const char *text =
        value != PEN_UNSET ? pen_enum_text(setting->choices, value) : pen_value_text(t, setting);
    add_value(values, text, value);
  }
}

static void add_listed(struct pen_axis_values *values, const struct pen_topology *t,
                       const struct pen_setting *list) {
  const void *field = (const char *)t + list->offset;
  const size_t count = ((const struct pen_integers *)field)->count;
  values->listed = true;
  for (size_t i = 0; i < count; i++) {
    const bool is_number = list->type == PEN_INTEGERS;
    const int64_t number = is_number ? ((const struct pen_integers *)field)->value[i]
                                     : ((const struct pen_chosen *)field)->value[i];
    const char *text =
        is_number ? pen_text("%lld", (long long)number) : pen_enum_text(list->choices, (int)number);
    bool again = false;
    for (size_t j = 0; j < values->count; j++) again |= !strcmp(values->value[j].text, text);
    if (!again) add_value(values, text, number);
  }
  if (!count)
    pen_topology_fail(t, pen_text("%s.%s", list->group, list->name),
                      "a list of at least one value");
}

/* `choices`: those of the axis, or null. */
static void add_all(struct pen_axis_values *values, const struct pen_topology *t, int axis,
                    const struct pen_enumerator *choices) {
  const int64_t most = axis == PEN_AXIS_stages ? STAGES_MOST : t->plan_ranks;
  for (const struct pen_enumerator *e = choices; e && e->text; e++)
    if ((axis != PEN_AXIS_balance || e->value != PEN_BALANCE_JOINT) &&
        (axis != PEN_AXIS_schedule || is_named_schedule(&pen_schedules[e->value])))
      add_value(values, e->text, e->value);
  for (int64_t n = 1; !choices && !rows[axis].values && n <= most; n++)
    if (axis == PEN_AXIS_stages || t->plan_ranks % n == 0)
      add_value(values, pen_text("%lld", (long long)n), n);
  for (const char *word = rows[axis].values; word && *word;) {
    char *end;
    const long long n = strtoll(word, &end, 10);
    add_value(values, pen_text("%lld", n), n);
    word = end;
  }
}

/* Whether the topology leaves the choice to the planner: it sets nothing, or "auto" for all
 * stages. */
static bool is_open(const struct pen_topology *t, const struct pen_setting *setting) {
  const void *field = (const char *)t + setting->offset;
  const struct pen_chosen *kinds = setting->type == PEN_CHOICES ? field : NULL;
  size_t automatic = 0;
  for (size_t i = 0; kinds && i < kinds->count; i++)
    automatic += kinds->value[i] == PEN_RECOMPUTE_AUTO; /* memory.recompute */
  if (automatic && automatic < kinds->count)
    pen_topology_fail(t, pen_text("%s.%s", setting->group, setting->name),
                      "\"auto\" for all stages or for none, for penstock-plan");
  return automatic || !*(const bool *)((const char *)t + setting->has_offset);
}

struct pen_axes *pen_axes_of(const struct pen_topology *t) {
  struct pen_axes *axes = pen_new(1, sizeof *axes);
  axes->written = t;
  pen_family_blocks(pen_family_of(t), t, (uint32_t)t->model_layers, &axes->block_count);
  for (int a = 0; a < PEN_AXES; a++) {
    struct pen_axis_values *values = &axes->axis[a];
    const struct pen_setting *setting = pen_setting_find_path(rows[a].setting),
                             *list = rows[a].list ? pen_setting_find_path(rows[a].list) : NULL;
    const bool listed = list && *(const bool *)((const char *)t + list->has_offset);
    values->setting = rows[a].setting;
    if (!is_open(t, setting)) {
      if (listed)
        pen_topology_fail(t, rows[a].list, "not together with %s, which leaves no choice",
                          rows[a].setting);
      add_fixed(values, t, setting);
    } else if (listed) {
      add_listed(values, t, list);
    } else {
      add_all(values, t, a, list && list->choices ? list->choices : setting->choices);
    }
    for (size_t i = 0; a == PEN_AXIS_schedule && i < values->count; i++)
      check_schedule(t, values->fixed ? rows[a].setting : rows[a].list,
                     &pen_schedules[values->value[i].number]);
  }
  return axes;
}

/* ---- choices ---- */

static const struct pen_axis_value *chosen_value(const struct pen_axes *axes,
                                                 const struct pen_choice *choice,
                                                 enum pen_axis axis) {
  const uint16_t index = choice->index[axis];
  return index == PEN_NOT_CHOSEN ? NULL : &axes->axis[axis].value[index];
}

int64_t pen_axis_number(const struct pen_axes *axes, const struct pen_choice *choice,
                        enum pen_axis axis) {
  const struct pen_axis_value *value = chosen_value(axes, choice, axis);
  return value ? value->number : 0;
}

const char *pen_axis_text(const struct pen_axes *axes, const struct pen_choice *choice,
                          enum pen_axis axis) {
  const struct pen_axis_value *value = chosen_value(axes, choice, axis);
  return value ? value->text : NULL;
}

const struct pen_schedule *pen_choice_schedule(const struct pen_axes *axes,
                                               const struct pen_choice *choice) {
  return &pen_schedules[pen_axis_number(axes, choice, PEN_AXIS_schedule)];
}

int64_t pen_choice_ranks(const struct pen_axes *axes, const struct pen_choice *choice) {
  return axes->written->plan_ranks / pipelines_of(axes, choice);
}

int64_t pen_choice_microbatches(const struct pen_axes *axes, const struct pen_choice *choice) {
  return axes->written->plan_sequences /
         (replicas_of(axes, choice) * pen_axis_number(axes, choice, PEN_AXIS_microbatch));
}

bool pen_choice_zigzag(const struct pen_axes *axes, const struct pen_choice *choice) {
  const struct pen_topology *t = axes->written;
  return (t->has_pipeline_placement
              ? t->pipeline_placement
              : pen_choice_schedule(axes, choice)->placement) == PEN_PLACEMENT_V;
}

static void add_choices(const struct pen_axes *axes, struct pen_choice *choice, int axis, int past,
                        struct pen_choices *choices) {
  if (axis == past) {
    PEN_RESERVE(choices->choice, choices->count + 1);
    choices->choice[choices->count++] = *choice;
    return;
  }
  const bool applies =
      axes->axis[axis].fixed || !rows[axis].applies || rows[axis].applies(axes, choice);
  choice->index[axis] = PEN_NOT_CHOSEN;
  if (!applies) add_choices(axes, choice, axis + 1, past, choices);
  for (size_t i = 0; applies && i < axes->axis[axis].count; i++) {
    choice->index[axis] = (uint16_t)i;
    if (!rows[axis].keeps || rows[axis].keeps(axes, choice))
      add_choices(axes, choice, axis + 1, past, choices);
  }
  choice->index[axis] = PEN_NOT_CHOSEN;
}

struct pen_choices pen_choices_of(const struct pen_axes *axes, const struct pen_choice *from,
                                  int first, int past) {
  struct pen_choices choices = {.choice = NULL};
  struct pen_choice choice = *from;
  add_choices(axes, &choice, first, past, &choices);
  return choices;
}

size_t pen_choice_settings(const struct pen_axes *axes, const struct pen_choice *choice,
                           struct pen_setting_text setting[PEN_CHOICE_SETTINGS_MAX]) {
  size_t count = 0;
  setting[count++] = (struct pen_setting_text){
      "pipeline.ranks", pen_text("%lld", (long long)pen_choice_ranks(axes, choice))};
  setting[count++] = (struct pen_setting_text){
      "pipeline.microbatches", pen_text("%lld", (long long)pen_choice_microbatches(axes, choice))};
  for (int a = 0; a < PEN_AXES; a++)
    if (choice->index[a] != PEN_NOT_CHOSEN)
      setting[count++] =
          (struct pen_setting_text){rows[a].setting, pen_axis_text(axes, choice, (enum pen_axis)a)};
  return count;
}

struct pen_topology *pen_choice_topology(const struct pen_axes *axes,
                                         const struct pen_choice *choice) {
  struct pen_setting_text setting[PEN_CHOICE_SETTINGS_MAX];
  const size_t count = pen_choice_settings(axes, choice, setting);
  size_t changed = 0;
  for (size_t i = 0; i < count; i++) {
    bool fixed = false;
    for (int a = 0; a < PEN_AXES; a++)
      fixed |= axes->axis[a].fixed && !strcmp(rows[a].setting, setting[i].path);
    if (!fixed) setting[changed++] = setting[i];
  }
  return pen_topology_with(axes->written, setting, changed);
}
