/* picture.c: what the pictures share: the terminal, scales, counted nouns. */
#include "gen/views/view.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"

#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_DEFAULT = 80, COLUMNS_LEAST = 40, COLUMNS_MOST = 10000 };

static int bounded(long columns) {
  return columns < COLUMNS_LEAST  ? COLUMNS_LEAST
         : columns > COLUMNS_MOST ? COLUMNS_MOST
                                  : (int)columns;
}

int pen_terminal_columns(FILE *out) {
  const char *said = getenv("COLUMNS");
  char *end;
  long columns = said ? strtol(said, &end, 10) : 0;
  if (said && *said && !*end && columns > 0) return bounded(columns);
  struct winsize size;
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return bounded(size.ws_col);
  return COLUMNS_DEFAULT;
}

bool pen_terminal_colour(FILE *out) {
  const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM");
  return isatty(fileno(out)) && !(refused && *refused) &&
         !(terminal && strcmp(terminal, "dumb") == 0);
}

uint32_t *pen_local_stages(const struct pen_partition *partition) {
  uint32_t *local = pen_new(partition->stage_count, sizeof *local),
           *next = pen_new(partition->rank_count, sizeof *next);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    local[stage] = next[partition->rank_of[stage]]++;
  return local;
}

double pen_scale_step(double span, int steps) {
  if (!(span > 0) || steps < 1) return 1;
  double least = span / steps, power = pow(10, floor(log10(least)));
  if (!(power > 0)) return span; /* too small for a power of ten */
  for (int factor = 1; factor <= 5; factor += factor == 1 ? 1 : 3)
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

const char *pen_counted(uint64_t count, const char *noun) {
  const char *ending = count == 1 ? "" : noun[strlen(noun) - 1] == 'h' ? "es" : "s";
  return pen_text("%llu %s%s", (unsigned long long)count, noun, ending);
}
