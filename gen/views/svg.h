/* svg.h: the elements of an SVG drawing, on a stream. Positions and sizes are in units of the
 * drawing, pixels unless a viewer scales it; `attributes` is empty or begins with a space. */
#ifndef PEN_SVG_H
#define PEN_SVG_H

#include <stdbool.h>
#include <stdio.h>

/* The values from `least` to `most` on the line between two positions; all are at `from` if most is
 * not above least. */
struct pen_svg_scale {
  double least, most, from, to;
};
double pen_svg_at(const struct pen_svg_scale *scale, double value);

/* Begins a drawing on white; `fixed`: it is not scaled to the window. `style`: an element or "". */
void pen_svg_begin(FILE *out, double width, double height, bool fixed, const char *font,
                   const char *style);
void pen_svg_end(FILE *out);

/* `size` 0, `anchor` null: that of the group. `anchor`: "start", "middle" or "end" is at x. */
void pen_svg_text(FILE *out, double x, double y, double size, const char *anchor, const char *text);
void pen_svg_rectangle(FILE *out, double x, double y, double w, double h, const char *attributes);
void pen_svg_line(FILE *out, double x, double y, double past_x, double past_y);

#endif
