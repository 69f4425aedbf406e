/* kernels_signature.c: parses the signatures of ops.def. */
#include "tests/support/kernels_signature.h"

/* One operand of a signature: NAME[?]['[' DIM,DIM ']'][:TYPE][@OTHER][+] */
static struct operand parse_operand(enum pen_dtype dtype, enum pen_op_kind kind, const int64_t *dim,
                                    const char *text, size_t length) {
  struct operand o = {.count = 1, .element_bytes = sizeof(float)};
  const char *end = text + length;
  const size_t name = strcspn(text, "?[");
  snprintf(o.name, sizeof o.name, "%.*s", (int)name, text);
  text += name;
  o.optional = *text == '?';
  text += strcspn(text, "[") + 1;
  while (text[-1] != ']') {
    const size_t here = strcspn(text, ",]");
    o.count *= *text >= '0' && *text <= '9' ? strtoul(text, NULL, 10)
                                            : (size_t)dim_value(kind, dim, text, here);
    text += here + 1;
  }
  for (; text < end; text++) {
    o.accumulates |= *text == '+';
    o.integer |= !strncmp(text, ":i32", 4);
    o.of_op |= !strncmp(text, ":t", 2) || !strncmp(text, ":s", 2);
    o.partial |= !strncmp(text, ":s", 2);
    if (!strncmp(text, ":f64", 4)) o.element_bytes = sizeof(double);
    if (!strncmp(text, ":bf16", 5)) o.element_bytes = sizeof(uint16_t);
    if (*text == '@') snprintf(o.shares, sizeof o.shares, "%.*s", (int)(end - text - 1), text + 1);
  }
  if (o.of_op && dtype != PEN_F32 && !(o.partial && dtype == PEN_BF16_PARTIAL))
    o.element_bytes = sizeof(uint16_t);
  return o;
}

struct signature parse_signature_as(enum pen_dtype dtype, enum pen_op_kind kind,
                                    const int64_t *dim) {
  struct signature s = {0};
  const char *text = op_rows[kind].signature;
  for (int output = 0; *text; text += strspn(text, " ")) {
    const size_t length = strcspn(text, " ");
    if (length == 2 && !strncmp(text, "->", 2)) {
      output = 1;
    } else {
      s.operand[s.count] = parse_operand(dtype, kind, dim, text, length);
      s.operand[s.count++].output = output;
    }
    text += length;
  }
  return s;
}

struct signature parse_signature(enum pen_op_kind kind, const int64_t *dim) {
  return parse_signature_as(PEN_F32, kind, dim);
}

size_t find_operand(const struct signature *s, const char *name) {
  for (size_t i = 0; i < s->count; i++)
    if (!strcmp(s->operand[i].name, name)) return i;
  fail_msg("no operand %s", name);
  return 0;
}

size_t operand_bytes(const struct operand *o) { return o->count * o->element_bytes; }

size_t starts_sequence(enum pen_op_kind kind, const int64_t *dim) {
  return (size_t)dim_value(kind, dim, "sequence", strlen("sequence"));
}

void fill_starts(int32_t *starts, size_t count, size_t sequence) {
  for (size_t i = 0; i < count; i++) {
    const size_t length = sequence / (i / sequence + 1) + (sequence % (i / sequence + 1) != 0);
    starts[i] = (int32_t)(i % sequence / length * length);
  }
}

void spread_operand(void *to, const struct operand *o, uint64_t seed) {
  if (o->element_bytes == sizeof(uint16_t)) {
    float *x = random_floats(o->count, seed);
    for (size_t i = 0; i < o->count; i++) ((uint16_t *)to)[i] = half_of(x[i]);
    return;
  }
  if (o->element_bytes == sizeof(float)) {
    spread(to, o->count, seed);
    return;
  }
  float number;
  for (size_t i = 0; i < o->count; i++) {
    spread(&number, 1, seed + i);
    ((double *)to)[i] = (double)number;
  }
}

struct pen_call fill_call(const struct op_case *of, const struct signature *s, size_t shift) {
  struct pen_call call = {0};
  memcpy(call.dim, of->dim, sizeof call.dim);
  memcpy(call.real, of->real, sizeof call.real);
  call.steps = op_case_steps(of->kind, of->dim);
  for (size_t i = 0; i < s->count; i++) {
    const struct operand *o = &s->operand[i];
    call.operand[i] = bytes_at(operand_bytes(o), (shift * (i + 1)) % 64);
    if (!strcmp(o->name, "starts"))
      fill_starts(call.operand[i], o->count, starts_sequence(of->kind, of->dim));
    else if (o->integer)
      for (size_t k = 0; k < o->count; k++)
        ((int32_t *)call.operand[i])[k] = (int32_t)(k * 5 % (size_t)of->integers);
    else if (!o->output || o->accumulates)
      spread_operand(call.operand[i], o, i + 1);
  }
  return call;
}

void assert_same_outputs(enum pen_op_kind kind, const struct signature *s, const struct pen_call *a,
                         const struct pen_call *b) {
  for (size_t i = 0; i < s->count; i++)
    if (s->operand[i].output && (a->operand[i] || b->operand[i])) {
      char what[64];
      snprintf(what, sizeof what, "%s.%s", op_rows[kind].name, s->operand[i].name);
      assert_same_bits(what, a->operand[i], b->operand[i], operand_bytes(&s->operand[i]));
    }
}
