/* json_text.c: JSON as text (see json_text.h). */
#define _GNU_SOURCE 1
#include "base/json_text.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whole numbers below this are written without an exponent, as Python does. */
#define PLAIN_BELOW 1e16

const char *pen_shortest_text(char text[PEN_NUMBER_BYTES], double number) {
  const double size = fabs(number);
  int digits = size >= 1 && size < PLAIN_BELOW ? 1 + (int)floor(log10(size)) : 1;
  bool same;
  do {
    snprintf(text, PEN_NUMBER_BYTES, "%.*g", digits, number);
    const double read = strtod(text, NULL);
    same = read <= number && read >= number;
  } while (!same && digits++ < 17);
  return strpbrk(text, ".en") ? text : strcat(text, ".0");
}

static void write_indent(FILE *out, int depth) { fprintf(out, "\n%*s", 2 * depth, ""); }

static void write_value(FILE *out, const json_t *value, int depth);

static void write_text(FILE *out, const char *text) {
  json_t *value = json_string(text);
  char *quoted = json_dumps(value, JSON_ENCODE_ANY);
  fputs(quoted == NULL ? "\"\"" : quoted, out);
  free(quoted);
  json_decref(value);
}

static void write_object(FILE *out, const json_t *object, int depth) {
  const char *separator = "", *key;
  json_t *value;
  fputs("{", out);
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    fputs(separator, out);
    write_indent(out, depth + 1);
    write_text(out, key);
    fputs(": ", out);
    write_value(out, value, depth + 1);
    separator = ",";
  }
  if (*separator != '\0') write_indent(out, depth);
  fputs("}", out);
}

static void write_array(FILE *out, const json_t *array, int depth) {
  fputs("[", out);
  for (size_t i = 0; i < json_array_size(array); i++) {
    fputs(i == 0 ? "" : ",", out);
    write_indent(out, depth + 1);
    write_value(out, json_array_get(array, i), depth + 1);
  }
  if (json_array_size(array) > 0) write_indent(out, depth);
  fputs("]", out);
}

/* The depth of what jansson has read is limited. */
static void write_value(FILE *out, const json_t *value, int depth) {
  char number[PEN_NUMBER_BYTES];
  switch (json_typeof(value)) {
    case JSON_OBJECT: write_object(out, value, depth); break;
    case JSON_ARRAY: write_array(out, value, depth); break;
    case JSON_STRING: write_text(out, json_string_value(value)); break;
    case JSON_INTEGER: fprintf(out, "%lld", (long long)json_integer_value(value)); break;
    case JSON_REAL: fputs(pen_shortest_text(number, json_real_value(value)), out); break;
    case JSON_TRUE: fputs("true", out); break;
    case JSON_FALSE: fputs("false", out); break;
    case JSON_NULL: fputs("null", out); break;
  }
}

char *pen_json_text(const struct json_t *value) {
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  if (out == NULL) return NULL;
  write_value(out, value, 0);
  fputs("\n", out);
  if (fclose(out) == 0) return text;
  free(text);
  return NULL;
}
