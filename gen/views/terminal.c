/* terminal.c: asks the environment and the terminal. */
#include "gen/views/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_DEFAULT = 80, COLUMNS_LEAST = 40, COLUMNS_MOST = 10000 };

static int clamp_columns(long columns) {
  return columns < COLUMNS_LEAST  ? COLUMNS_LEAST
         : columns > COLUMNS_MOST ? COLUMNS_MOST
                                  : (int)columns;
}

int pen_terminal_columns(FILE *out) {
  const char *setting = getenv("COLUMNS");
  char *end;
  long columns = setting ? strtol(setting, &end, 10) : 0;
  if (setting && *setting && !*end && columns > 0) return clamp_columns(columns);
  struct winsize size;
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return clamp_columns(size.ws_col);
  return COLUMNS_DEFAULT;
}

bool pen_terminal_colour(FILE *out) {
  const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
  return isatty(fileno(out)) && !(no_colour && *no_colour) &&
         !(terminal && strcmp(terminal, "dumb") == 0);
}
