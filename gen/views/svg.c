/* svg.c: the elements of an SVG drawing (see svg.h). */
#include "gen/views/svg.h"

#include <string.h>

#include "gen/base/escape.h"

double pen_svg_at(const struct pen_svg_scale *scale, double value) {
  const double span = scale->most - scale->least;
  return span > 0 ? scale->from + (value - scale->least) / span * (scale->to - scale->from)
                  : scale->from;
}

void pen_svg_begin(FILE *out, double width, double height, bool fixed, const char *font,
                   const char *style) {
  fputs("<svg xmlns=\"http://www.w3.org/2000/svg\"", out);
  if (fixed) fprintf(out, " width=\"%.0f\" height=\"%.0f\"", width, height);
  fprintf(out,
          " viewBox=\"0 0 %.0f %.0f\" %s>\n%s"
          "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
          width, height, font, style);
}

void pen_svg_end(FILE *out) { fputs("</svg>\n", out); }

/* Writes text as character data: one line of UTF-8. */
static void write_escaped(FILE *out, const char *text) {
  for (const char *at = pen_visible_text(text, strlen(text)); *at; at++) {
    switch (*at) {
      case '&': fputs("&amp;", out); break;
      case '<': fputs("&lt;", out); break;
      case '>': fputs("&gt;", out); break;
      default: fputc(*at, out);
    }
  }
}

void pen_svg_text(FILE *out, double x, double y, double size, const char *anchor,
                  const char *text) {
  fprintf(out, "<text x=\"%.2f\" y=\"%.2f\"", x, y);
  if (size > 0) fprintf(out, " font-size=\"%.3g\"", size);
  if (anchor) fprintf(out, " text-anchor=\"%s\"", anchor);
  fputs(">", out);
  write_escaped(out, text);
  fputs("</text>\n", out);
}

void pen_svg_rectangle(FILE *out, double x, double y, double w, double h, const char *attributes) {
  fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"%s/>\n", x, y, w, h,
          attributes);
}

void pen_svg_line(FILE *out, double x, double y, double past_x, double past_y) {
  fprintf(out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n", x, y, past_x, past_y);
}
