/* write_topology.c: a candidate as a topology of its own: what the file sets, without the group
 * plan, and what was chosen. Includes are resolved. */
#include "gen/planner/write_topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/base/escape.h"
#include "gen/base/version.h"
#include "gen/topology/description.h"
#include "gen/topology/settings.h"
#include "gen/topology/value.h"

/* The axis of a setting; null: none. */
static const struct pen_axis_values *axis_of(const struct pen_planner *planner, const char *path) {
  for (int a = 0; a < PEN_AXES; a++)
    if (!strcmp(planner->axes->axis[a].setting, path)) return &planner->axes->axis[a];
  return NULL;
}

/* What a refined candidate has instead of the choice: all but what the topology fixes, or lists, is
 * chosen together with the order. */
static const char *refined_text(const struct pen_axis_values *axis) {
  static const struct pen_setting_text refined[] = {{"partition.balance", "joint"},
                                                    {"memory.recompute", "auto"}};
  if (!strcmp(axis->setting, "pipeline.schedule")) return "search";
  for (size_t i = 0; i < sizeof refined / sizeof *refined; i++)
    if (!strcmp(axis->setting, refined[i].path) && !axis->fixed && !axis->listed)
      return refined[i].text;
  return NULL;
}

size_t pen_written_settings(const struct pen_planner *planner, const struct pen_choice *choice,
                            const uint64_t *search_seconds,
                            struct pen_setting_text setting[PEN_WRITTEN_SETTINGS_MAX]) {
  struct pen_setting_text chosen[PEN_CHOICE_SETTINGS_MAX];
  const size_t chosen_count = pen_choice_settings(planner->axes, choice, chosen);
  size_t count = 0;
  for (size_t i = 0; i < chosen_count; i++) {
    const struct pen_axis_values *axis = axis_of(planner, chosen[i].path);
    const char *refined = axis && search_seconds ? refined_text(axis) : NULL;
    if (refined) chosen[i].text = refined;
    if (refined || !axis || !axis->fixed) setting[count++] = chosen[i];
  }
  if (search_seconds) {
    setting[count++] = (struct pen_setting_text){
        "pipeline.search_seconds", pen_text("%llu", (unsigned long long)*search_seconds)};
    setting[count++] = (struct pen_setting_text){"pipeline.search_seed", "0"};
  }
  if (!planner->written->has_memory_limit_mib)
    setting[count++] = (struct pen_setting_text){
        "memory.limit_mib", pen_text("%lld", (long long)planner->written->plan_memory_mib)};
  return count;
}

const struct pen_topology *pen_written_topology(const struct pen_planner *planner,
                                                const struct pen_choice *choice,
                                                const uint64_t *search_seconds) {
  struct pen_setting_text setting[PEN_WRITTEN_SETTINGS_MAX];
  const size_t count = pen_written_settings(planner, choice, search_seconds, setting);
  return pen_topology_with(planner->written, setting, count);
}

/* The value of a setting; of a list that was written as one value for all, that value. */
static const char *value_text(const struct pen_topology *t, const struct pen_setting *setting) {
  const void *field = (const char *)t + setting->offset;
  const bool for_all =
      (setting->type == PEN_REALS && ((const struct pen_reals *)field)->for_all) ||
      (setting->type == PEN_CHOICES && ((const struct pen_chosen *)field)->for_all);
  if (!for_all) return pen_value_text(t, setting);
  return setting->type == PEN_REALS
             ? pen_text("%.17g", ((const struct pen_reals *)field)->value[0])
             : pen_text("\"%s\"", pen_enum_text(setting->choices,
                                                ((const struct pen_chosen *)field)->value[0]));
}

/* The topology with the path of its description as `output`, in perhaps another folder, needs it.
 */
static struct pen_topology with_path(const struct pen_topology *t, const char *output) {
  struct pen_topology copy = *t;
  if (!t->description) return copy;
  const char *path = t->description->path;
  const bool here = !strchr(path, '/') && !strchr(output, '/');
  char *whole = here || *path == '/' ? NULL : realpath(path, NULL);
  copy.model_description = whole ? pen_text("%s", whole) : path;
  free(whole);
  return copy;
}

static void write_groups(FILE *out, const struct pen_topology *t) {
  const char *group = "";
  for (size_t i = 0; i < pen_setting_count; i++) {
    const struct pen_setting *setting = &pen_settings[i];
    if (!*(const bool *)((const char *)t + setting->has_offset) || !strcmp(setting->group, "plan"))
      continue;
    if (strcmp(group, setting->group))
      fprintf(out, "%s%s = {\n", *group ? "};\n" : "", setting->group);
    group = setting->group;
    fprintf(out, "  %s = %s;\n", setting->name, value_text(t, setting));
  }
  fprintf(out, "};\n");
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

void pen_write_topology(const struct pen_planner *planner, const struct pen_plan_result *result) {
  const struct pen_plan_candidate *written = &result->best[planner->options->candidate - 1];
  const char *output = planner->options->output;
  struct stat status;
  const bool replaces = lstat(output, &status) || S_ISREG(status.st_mode);
  const char *path = replaces ? pen_text("%s.tmp%ld", output, (long)getpid()) : output;
  FILE *out = fopen(path, replaces ? "wx" : "w");
  if (!out) pen_stop(PEN_EXIT_CREATE, "penstock-plan: %s: %s", output, strerror(errno));
  fprintf(out, "# Plan %llu of %s: a step of %.6g %s, %llu MiB a rank. Made by penstock-plan %s.\n",
          (unsigned long long)planner->options->candidate,
          pen_comment_text(base_name(planner->written->path)), written->step,
          result->unit + strlen("in "),
          (unsigned long long)((written->arena_bytes + (1 << 20) - 1) >> 20), PEN_VERSION_TEXT);
  const struct pen_topology topology =
      with_path(pen_written_topology(planner, &written->choice,
                                     written->searched ? &planner->options->seconds : NULL),
                output);
  write_groups(out, &topology);
  const bool failed = ferror(out) != 0;
  if (fclose(out) || failed || (replaces && rename(path, output))) {
    const int cause = errno;
    if (replaces) unlink(path);
    pen_stop(PEN_EXIT_WRITE, "penstock-plan: %s: %s", output, strerror(cause));
  }
}
